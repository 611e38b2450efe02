"""The inputs of a run: from files, or made up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from brickrt.cli.inputs import parse
from brickrt.cli.inputs.feeds import Arrays, Feed, no_input, read_feed
from brickrt.cli.inputs.file_lists import InputFiles, all_files, input_files
from brickrt.cli.inputs.presets import preprocessing
from brickrt.cli.inputs.shapes import concrete_shapes
from brickrt.cli.requests import InputRequest
from brickrt.dashboard.units import size_text
from brickrt.graph.errors import InputError
from brickrt.graph.onnx_import.check_inputs import describe
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.graph.onnx_import.tensor_info import TensorInfo
from brickrt.plan.device.machine import memory_bytes
from brickrt.runtime.files.formats.file_formats import OF_NUMPY, format_of


def check_request(request: InputRequest) -> None:
    """Refuses options that would be without effect."""
    if request.random and request.files:
        raise InputError("--random and --input exclude each other: leave one out")
    if not request.random and request.seed is not None:
        raise InputError("--seed is of use with --random only: add --random or leave it out")
    if not request.random and request.shapes:
        raise InputError("--shape is of use with --random only: add --random or leave it out")
    if not request.files:
        check_images(request, [])


def check_images(request: InputRequest, runs: Sequence[InputFiles]) -> None:
    """Refuses options for images where none of the files is one."""
    files = all_files(runs)
    if request.image.given() and all(format_of(file, OF_NUMPY) for file in files):
        why = f": {Path(files[0]).parent} holds arrays only" if len(files) > 1 else ""
        raise InputError(f"{request.image.given()[0]} is of use with images only{why}: leave it out")


def gather(source: SourceGraph, request: InputRequest) -> tuple[Feed, list[str]]:
    """What one run takes, and the open dimensions for which 1 was taken. The runtime checks whether it fits."""
    if request.random:
        arrays, assumed = _random(source, request)
        return Feed(arrays), assumed
    if not request.files and source.inputs:
        raise no_input(source.inputs)
    runs = input_files(source, request.files)
    check_images(request, runs)
    if len(runs) > 1:
        raise InputError(f"{len(runs)} files are given for one input: give one")
    return (read_feed(source, runs[0], preprocessing(source, request.image)) if runs else Feed()), []


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
