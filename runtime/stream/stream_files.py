"""From the paths and arrays that a caller names to a job: files opened, an earlier run's journal looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.runtime.files.extras import brings_gpu_arrays, needed
from brickrt.runtime.files.formats.file_formats import is_zarr
from brickrt.runtime.files.journal import journal_path, read_journal, require_journal
from brickrt.runtime.files.model_inputs import AS_THEY_ARE, Pixels, source_of
from brickrt.runtime.files.scratch import scratch_path
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.stream.stream_job import CUT, StreamJob
from brickrt.runtime.stream.stream_report import StreamCut, StreamOptions, Watch, check_options


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


def going_on(options: StreamOptions, outputs: Mapping[str, str | Path]) -> StreamOptions:
    """The options, without `resume` where no earlier run got so far that there is something to go on with: this one
    begins. Raises BrickError where it would write over outputs, and for options that make no sense."""
    check_options(options)
    journal = journal_path(next(iter(outputs.values())))
    if not options.resume or journal.exists():
        return options
    check_none(outputs)
    return replace(options, resume=False)


def check_none(outputs: Mapping[str, str | Path]) -> None:
    """Raises BrickError for an output that is there, though there is no run to go on with."""
    for path in outputs.values():
        if Path(str(path).partition("::")[0]).exists():
            why = "is there, and there is no run of it to go on with"
            raise BrickError(f"{path}: {why}: leave out --resume to write it again, or remove it")


def check_by_name(inputs: object, outputs: object) -> None:
    """Raises BrickError where files are not given by name, and where there is no output."""
    for what, files, example in (("inputs", inputs, "x"), ("outputs", outputs, "y")):
        if not isinstance(files, Mapping):
            raise BrickError(f"{what} are a {type(files).__name__}: give them by name, as {{'{example}': file}}")
    if not outputs:
        raise BrickError("there is no output: give a file for each of the model's")


@contextmanager
def opened_job(
    pipeline: Pipeline,
    source: SourceGraph,
    inputs: Any,
    outputs: Mapping[str, str | Path],
    options: StreamOptions,
    pixels: Pixels = AS_THEY_ARE,
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
