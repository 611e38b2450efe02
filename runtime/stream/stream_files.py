"""From the paths and arrays that a caller names to a job: files opened, an earlier run's journal looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError, InputError
from brickrt.graph.onnx_import.check_inputs import describe
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.runtime.files.extras import brings_gpu_arrays, needed
from brickrt.runtime.files.grey import in_colours
from brickrt.runtime.files.journal import journal_path, read_journal, require_journal
from brickrt.runtime.files.scratch import scratch_path
from brickrt.runtime.files.source import is_zarr, open_source
from brickrt.runtime.files.tensors import TensorSource, as_tensor, unit_scale
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.stream.stream_job import CUT, StreamJob
from brickrt.runtime.stream.stream_report import StreamCut, StreamOptions, Watch, check_options

IMAGES = (".tif", ".tiff", ".btf", ".tf8")


@dataclass(frozen=True)
class Pixels:
    """What is done to the values of inputs of floats: (value × scale − mean) / std, in float32, cut off at `bounds`.
    With `images`, whole numbers of TIFF files become 0 to 1 where no scale is given."""

    scale: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    bounds: tuple[float, float] | None = None
    images: bool = False


def named(what: str, given: Any, names: list[str]) -> dict[str, Any]:
    """What is given by name; one thing alone is for the one name that there is. Raises BrickError."""
    if not isinstance(given, Mapping):
        if len(names) != 1:
            raise BrickError(f"the model has the {what} {', '.join(map(repr, names))}: give them by name")
        return {names[0]: given}
    unknown = [name for name in given if name not in names]
    if unknown or len(given) < len(names):
        wrong = f"'{unknown[0]}' is none of them" if unknown else "some are missing"
        raise BrickError(f"the model has the {what} {', '.join(map(repr, names))}: {wrong}")
    return dict(given)


@contextmanager
def opened_job(
    pipeline: Pipeline,
    source: SourceGraph,
    inputs: Any,
    outputs: Mapping[str, str | Path],
    options: StreamOptions,
    pixels: Pixels = Pixels(),
    watch: Watch | None = None,
) -> Iterator[StreamJob]:
    """A job on files, which are closed when this is left. With `options.resume`, the bands are those of the run that
    the journal of `outputs` is of. Raises BrickError."""
    check_options(options)
    if options.resume and options.cut is None:
        options = replace(options, cut=_begun(outputs))
    with ExitStack() as stack:
        tensors = {}
        for name, what in named("inputs", inputs, list(source.inputs)).items():
            tensors[name] = source_of(source, name, what, pixels)
            stack.callback(tensors[name].close)
        for path in (str(path) for path in outputs.values() if is_zarr(str(path)) and brings_gpu_arrays()):
            needed("zarr", path)
        job = StreamJob(pipeline, source, tensors, options, watch, _spill_into(outputs, options))
        for tensor in tensors.values():
            tensor.copy_if_scattered()
        yield job


def _spill_into(outputs: Mapping[str, str | Path], options: StreamOptions) -> Path | None:
    """The folder that is spilled into; None where nothing may be."""
    if options.spill == "never":
        return None
    return scratch_path(next(iter(outputs.values())), options.scratch).parent


def _begun(outputs: Mapping[str, str | Path]) -> StreamCut:
    """How the run was cut that is gone on with."""
    path = journal_path(next(iter(outputs.values())))
    require_journal(path)
    header, _ = read_journal(path)
    try:
        return StreamCut.parse(header[CUT])
    except (KeyError, ValueError):
        raise BrickError(f"{path}: is a journal of another version: leave out --resume to start again") from None


def source_of(source: SourceGraph, name: str, what: Any, pixels: Pixels) -> TensorSource:
    """The file or array as the model's input `name`. Raises InputError where it does not fit."""
    if isinstance(what, TensorSource):
        return what
    info = source.inputs[name]
    if info.dtype is None or info.shape is None:
        raise InputError(f"input '{name}' {describe(info)} has an open rank: such a network is not run band by band")
    file = open_source(what)
    try:
        scaled = info.dtype in (np.float32, np.float64)
        picture = pixels.images and file.name.lower().endswith(IMAGES) and file.dtype.kind in "iu"
        scale = unit_scale(file.dtype) if pixels.scale is None and picture else pixels.scale
        shape = tuple(extent if isinstance(extent, int) else None for extent in info.shape)
        if pixels.images and file.name.lower().endswith(IMAGES):
            file = in_colours(file, shape)
        if not scaled:
            return as_tensor(file, shape, info.dtype)
        return as_tensor(file, shape, info.dtype, scale=scale, mean=pixels.mean, std=pixels.std, bounds=pixels.bounds)
    except BaseException:
        file.close()
        raise
