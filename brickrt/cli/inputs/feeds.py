"""The arrays that one run of a model takes, read from its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from brickrt.cli.inputs import images
from brickrt.cli.inputs.arrays import read_npy, read_npz
from brickrt.cli.inputs.file_lists import InputFiles
from brickrt.cli.inputs.presets import Preprocessing
from brickrt.graph.errors import InputError
from brickrt.graph.onnx_import.check_inputs import describe
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.graph.onnx_import.tensor_info import TensorInfo
from brickrt.runtime.files.converted import as_kind, check_convertible
from brickrt.runtime.files.extras import needed
from brickrt.runtime.files.formats.box_files import BoxSource
from brickrt.runtime.files.formats.file_formats import READ_WHOLE, format_of, is_zarr, listed, way_of
from brickrt.runtime.files.model_inputs import source_of

Arrays = dict[str, np.ndarray]


@dataclass
class Feed:
    """Arrays by input name; the picture that the first image was, as whole numbers [height, width, channels]; and the
    file that a result takes its place in the world from."""

    arrays: Arrays = field(default_factory=dict)
    picture: np.ndarray | None = None
    like: BoxSource | None = None


def read_feed(source: SourceGraph, given: InputFiles, asked: Preprocessing) -> Feed:
    """What the files hold. The runtime checks whether it fits the model."""
    feed = Feed()
    for name, text in given.files.items():
        for key, array in _read(source, name, text, asked, feed).items():
            if key in feed.arrays:
                raise InputError(f"input '{key}' is given twice: give it once")
            feed.arrays[key] = array
    return feed


def expected_arrays(source: SourceGraph, given: InputFiles, asked: Preprocessing) -> Arrays | None:
    """Zeros of the types and shapes that `read_feed` gives for pictures, by the files' headers; None where that takes
    more than headers."""
    found: Arrays = {}
    for name, text in given.files.items():
        path, info = Path(text), source.inputs.get(name or "")
        if not path.is_file() or way_of(path) != "picture" or info is None or info.dtype is None:
            return None
        shape = images.image_shape(path, str(name), info, asked)
        if shape is None:
            return None
        found[str(name)] = np.zeros(shape, info.dtype)
    return found


def _read(source: SourceGraph, name: str | None, text: str, asked: Preprocessing, feed: Feed) -> Arrays:
    path, found = Path(text), format_of(text, READ_WHOLE)
    if not Path(text.partition("::")[0]).exists() and "://" not in text:
        raise InputError(f"{text}: no such file: check the path")
    if "://" in text and not is_zarr(text):
        raise InputError(f"{text}: only Zarr is read from elsewhere: save it on a disk here")
    if found is None or (found.way != "boxes" and path.is_dir()):
        raise InputError(f"{text}: is none of {listed(READ_WHOLE)}: convert it")
    if found.way == "archive":
        return _from_archive(source, name, path)
    assert name is not None
    info = _info(source, name)
    if found.way == "array":
        array = read_npy(path)
        if info.shape is not None and array.ndim < len(info.shape):  # its axes are put in the model's order
            del array  # which is read once more
            return {name: _boxes(source, name, text, Preprocessing(), Feed())}
        return {name: _as_taken(text, array, info)}
    if found.way != "picture":
        return {name: _boxes(source, name, text, asked, feed)}
    picture = images.read_image(path, name, info, asked)
    feed.picture = picture.pixels if feed.picture is None else feed.picture
    return {name: picture.array}


def _boxes(source: SourceGraph, name: str, text: str, asked: Preprocessing, feed: Feed) -> np.ndarray:
    """All of a file that is otherwise read box by box, in the size that was asked for."""
    info = source.inputs.get(name) or source.optional[name]
    assert info.dtype is not None
    layout = asked.layout or images.layout_of(info)
    fits = asked.resizes and info.shape is not None and len(info.shape) in (3, 4) and layout == "nchw"
    shape = (*info.shape[:-2], None, None) if fits and info.shape else info.shape
    read_as = TensorInfo(np.dtype(np.float32) if fits else info.dtype, shape)
    tensor = source_of(replace(source, inputs={**source.inputs, name: read_as}), name, text, asked.pixels())
    try:
        array = np.empty(tensor.shape, tensor.dtype)
        tensor.read((0,) * array.ndim, array)
    finally:
        tensor.close()
    feed.like = tensor.source if feed.like is None else feed.like
    if fits:
        needed("PIL", text, "images")
        array = _fitted(array, images.expected(info, layout)[:2], asked)
    if asked.swapped and array.ndim == 4 and array.shape[1] == 3:
        array = np.ascontiguousarray(array[:, ::-1])
    return array.astype(info.dtype, copy=False)


def _fitted(array: np.ndarray, wanted: tuple[int | None, int | None], asked: Preprocessing) -> np.ndarray:
    from brickrt.cli.inputs.resizing import fitted_size, resized_planes

    whole, crop = fitted_size((array.shape[-2], array.shape[-1]), wanted, asked)
    return resized_planes(array, whole, crop, asked.bicubic)


def _info(source: SourceGraph, name: str) -> TensorInfo:
    info = source.inputs.get(name) or source.optional[name]
    if info.dtype is None:
        raise InputError(f"input '{name}' is no tensor: run the model from Python, with brickrt.Runtime")
    return info


def _from_archive(source: SourceGraph, name: str | None, path: Path) -> Arrays:
    arrays = read_npz(path)
    if name is not None:
        if len(arrays) > 1 and name not in arrays:
            raise InputError(f"{path}: holds no '{name}' among {', '.join(arrays)}: save one under that name")
        if not arrays:
            raise InputError(f"{path}: is empty: save an array in it")
        arrays = {name: arrays.get(name, next(iter(arrays.values())))}
    known = {**source.inputs, **source.optional}
    return {n: _as_taken(str(path), array, _info(source, n)) if n in known else array for n, array in arrays.items()}


def _as_taken(file: str, array: np.ndarray, info: TensorInfo) -> np.ndarray:
    """The numbers of a plain file in the type that the model takes, as runs band by band read them. Such files hold
    bfloat16 and float8 as bytes without a type."""
    kind = info.dtype
    if kind is None or kind.hasobject or array.dtype.hasobject or array.dtype.kind in "SU":
        return array
    nameless = array.dtype.kind == "V" and array.dtype.names is None
    if nameless and kind.kind == "V" and kind.itemsize == array.dtype.itemsize:
        return array.view(kind)
    check_convertible(file, array.dtype, kind)
    return as_kind(file, array, kind)


def no_input(inputs: Mapping[str, TensorInfo]) -> InputError:
    """The error that no input is given."""
    wanted = ", ".join(f"'{name}' {describe(info)}" for name, info in inputs.items())
    return InputError(f"no input is given, the model takes {wanted}: use --input FILE, or --random")
