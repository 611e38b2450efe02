"""Files and arrays as inputs of a model, and what is done to their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from brickrt.graph.errors import InputError
from brickrt.graph.onnx_import.check_inputs import describe
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.graph.onnx_import.tensor_info import TensorInfo
from brickrt.runtime.files.formats.box_files import BoxSource
from brickrt.runtime.files.formats.file_formats import OF_PIXELS, format_of
from brickrt.runtime.files.grey import in_colours
from brickrt.runtime.files.source import open_source
from brickrt.runtime.files.tensors import TensorSource, as_tensor, is_scaled, unit_scale


@dataclass(frozen=True)
class Pixels:
    """What is done to the values of inputs of floats: (value × scale − mean) / std, in float32, cut off at `bounds`.
    With `images`, whole numbers of TIFF files become 0 to 1 where no scale is given."""

    scale: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    bounds: tuple[float, float] | None = None
    images: bool = False


AS_THEY_ARE = Pixels()


def source_of(source: SourceGraph, name: str, what: Any, pixels: Pixels) -> TensorSource:
    """The file or array as the model's input `name`. Raises InputError where it does not fit."""
    if isinstance(what, TensorSource):
        return what
    info = source.inputs[name]
    if info.dtype is None or info.shape is None:
        raise InputError(f"input '{name}' {describe(info)} has an open rank: such a network is not run band by band")
    file = open_source(what)
    try:
        return as_input(file, info, pixels)
    except BaseException:
        file.close()
        raise


def as_input(file: BoxSource, info: TensorInfo, pixels: Pixels) -> TensorSource:
    """The file as an input that the model declares so, with a type and a rank. Raises InputError where it does not
    fit."""
    assert info.dtype is not None and info.shape is not None
    shape = tuple(extent if isinstance(extent, int) else None for extent in info.shape)
    picture = pixels.images and format_of(file.name, OF_PIXELS) is not None
    scale = unit_scale(file.dtype) if pixels.scale is None and picture and file.dtype.kind in "iu" else pixels.scale
    if picture:
        file = in_colours(file, shape)
    if pixels.images and not is_scaled(info.dtype):
        return as_tensor(file, shape, info.dtype)
    return as_tensor(file, shape, info.dtype, scale=scale, mean=pixels.mean, std=pixels.std, bounds=pixels.bounds)
