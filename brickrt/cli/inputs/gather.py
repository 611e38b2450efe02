"""The inputs of a run: from files, or made up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from brickrt.cli.inputs import images, parse
from brickrt.cli.inputs.arrays import read_npy, read_npz
from brickrt.cli.inputs.shapes import concrete_shapes
from brickrt.cli.requests import ImageRequest, InputRequest
from brickrt.dashboard.units import size_text
from brickrt.graph.errors import InputError
from brickrt.graph.onnx_import.check_inputs import describe
from brickrt.graph.onnx_import.protobuf import TensorInfo
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.plan.device.machine import memory_bytes

Arrays = dict[str, np.ndarray]
FORMATS = (".npy", ".npz", *images.SUFFIXES)


def check_request(request: InputRequest) -> None:
    """Refuses options that would be without effect."""
    if request.random and request.files:
        raise InputError("--random and --input exclude each other: leave one out")
    if not request.random and request.seed is not None:
        raise InputError("--seed is of use with --random only: add --random or leave it out")
    if not request.random and request.shapes:
        raise InputError("--shape is of use with --random only: add --random or leave it out")
    pictures = any(file.lower().endswith(images.SUFFIXES) for file in request.files)
    if request.image.given() and not pictures:
        raise InputError(f"{request.image.given()[0]} is of use with images only: leave it out")


def gather(source: SourceGraph, request: InputRequest) -> tuple[Arrays, list[str]]:
    """Arrays by input name, and the open dimensions for which 1 was taken. The runtime checks whether they fit."""
    if request.random:
        return _random(source, request)
    if not request.files and source.inputs:
        wanted = ", ".join(f"'{name}' {describe(info)}" for name, info in source.inputs.items())
        raise InputError(f"no input is given, the model takes {wanted}: use --input FILE, or --random")
    arrays: Arrays = {}
    for text in request.files:
        for name, array in _from_file(source, text, request.image).items():
            if name in arrays:
                raise InputError(f"input '{name}' is given twice: give it once")
            arrays[name] = array
    return arrays, []


def named_files(source: SourceGraph, files: Sequence[str]) -> dict[str, str]:
    """Paths, or places inside files as `a.h5::name`, by input name."""
    if not files:
        wanted = ", ".join(f"'{name}' {describe(info)}" for name, info in source.inputs.items())
        raise InputError(f"no input is given, the model takes {wanted}: use --input FILE")
    named: dict[str, str] = {}
    for text in files:
        given, path = _split(source, text)
        name = given or _only_input(source, path)
        if name in named:
            raise InputError(f"input '{name}' is given twice: give it once")
        named[name] = text if given is None else text[len(given) + 1 :]
    return named


def _from_file(source: SourceGraph, text: str, image: ImageRequest) -> Arrays:
    name, path = _split(source, text)
    if not path.parts:
        raise InputError(f"--input '{text}' names no file: write it as --input NAME=FILE")
    if not path.exists():
        raise InputError(f"{path}: no such file: check the path")
    suffix = path.suffix.lower()
    if suffix not in FORMATS or path.is_dir():
        raise InputError(f"{path}: is none of {', '.join(FORMATS)}: convert it")
    if suffix == ".npz":
        return _from_archive(source, name, path)
    name = name or _only_input(source, path)
    info = _info(source, name)
    array = read_npy(path) if suffix == ".npy" else images.read_image(path, name, info, image)
    return {name: _as_small_float(array, info)}


def _split(source: SourceGraph, text: str) -> tuple[str | None, Path]:
    """`name=file` or `file`. Names and paths may contain '=': the model's inputs and the files that exist decide."""
    names = [name for name in (*source.inputs, *source.optional) if text.startswith(f"{name}=")]
    if names:
        name = max(names, key=len)
        return name, Path(text[len(name) + 1 :])
    before, equals, _ = text.partition("=")
    if equals and not Path(text).exists():
        raise InputError(f"--input {text}: the model has no input '{before}': its inputs are {_names(source)}")
    return None, Path(text)


def _names(source: SourceGraph) -> str:
    return ", ".join(f"'{name}'" for name in source.inputs) or "none"


def _only_input(source: SourceGraph, path: Path) -> str:
    if len(source.inputs) == 1:
        return next(iter(source.inputs))
    if not source.inputs:
        raise InputError(f"--input {path}: the model takes no inputs: leave it out")
    raise InputError(f"--input {path}: the model takes {_names(source)}: say which, as --input NAME={path}")


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
    return {n: _as_small_float(array, _info(source, n)) if n in known else array for n, array in arrays.items()}


def _as_small_float(array: np.ndarray, info: TensorInfo) -> np.ndarray:
    """.npy files hold bfloat16 and float8 as bytes without a type."""
    nameless = array.dtype.kind == "V" and array.dtype.names is None
    if nameless and info.dtype is not None and info.dtype.itemsize == array.dtype.itemsize:
        return array.view(info.dtype)
    return array


def _random(source: SourceGraph, request: InputRequest) -> tuple[Arrays, list[str]]:
    shapes, assumed = concrete_shapes(source, parse.named_shapes(request.shapes))
    _check_room(source, shapes)
    rng = np.random.default_rng(request.seed or 0)
    return {name: _made_up(name, info, shapes, rng) for name, info in source.inputs.items()}, assumed


def _check_room(source: SourceGraph, shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuses inputs that this machine cannot hold together; the error names the largest."""
    items = {name: getattr(source.inputs[name].dtype, "itemsize", 1) for name in shapes}
    sizes = {name: math.prod(shape) * items[name] for name, shape in shapes.items()}
    if sum(sizes.values()) > memory_bytes():
        name = max(sizes, key=lambda n: sizes[n])
        asked, room = f"{name}={','.join(map(str, shapes[name]))}", size_text(memory_bytes())
        raise InputError(f"--shape {asked} takes {size_text(sizes[name])}, this machine has {room}: make it smaller")


def _made_up(name: str, info: TensorInfo, shapes: dict[str, tuple[int, ...]], rng: np.random.Generator) -> np.ndarray:
    """Random values: normal floats, whole numbers from 0 to 9, or booleans."""
    if info.dtype is None or info.dtype.kind in "OUS":
        raise InputError(f"--random cannot make up input '{name}' {describe(info)}: give it with --input")
    shape, kind = shapes[name], info.dtype.kind
    if kind == "b":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if kind in "iu":
        return np.asarray(rng.integers(0, 10, shape)).astype(info.dtype)
    if kind == "c":
        return np.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(info.dtype)
    return np.asarray(rng.standard_normal(shape, np.float32)).astype(info.dtype)
