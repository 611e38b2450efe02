"""Outputs that are kept as far as they are written, with the journal that says how far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from brickrt.graph.errors import BrickError, InputError
from brickrt.ops.types import Shape, TensorType
from brickrt.runtime.files.journal import Journal, JournalPlace
from brickrt.runtime.files.tensors import TensorSink, TensorSource, as_file, check_named, if_float

Sinks = dict[str, TensorSink]
MOST_COLUMNS = 1024  # of a chunk of an output


class OutputOptions(Protocol):
    """How outputs are stored (see `as_file`), and whether a run that was ended early is gone on with."""

    @property
    def stored(self) -> str | None:
        """The type of what was float."""
        ...

    @property
    def scale(self) -> float | None:
        """What floats are multiplied with before."""
        ...

    @property
    def resume(self) -> bool:
        """Whether there may be files of an earlier run."""
        ...


class OutputLayout(NamedTuple):
    """The tensor that an output's file holds, the axis of its rows, and the chunks that a run writes whole."""

    kind: TensorType
    axis: int
    chunks: Shape


def opened_sinks(
    layouts: Mapping[str, OutputLayout],
    outputs: Mapping[str, str | Path],
    like: TensorSource,
    options: OutputOptions,
    remark: str = "",
) -> Sinks:
    """A file for each of a model's outputs; for `like`, the input, and `remark` see `create_sink`. Raises BrickError
    where `outputs` lacks one or names others, and for files that cannot be written: then none is left behind."""
    check_named("outputs", layouts, outputs)
    sinks: Sinks = {}
    try:
        for name, (kind, axis, chunks) in layouts.items():
            stored, scale = if_float(kind.dtype, options.stored, options.scale)
            sinks[name] = as_file(
                outputs[name],
                kind.shape,
                kind.dtype,
                stored=stored,
                scale=scale,
                axis=axis,
                resume=options.resume,
                chunks=chunks,
                like=like,
                remark=remark,
            )
    except BaseException:
        for sink in sinks.values():
            sink.abandon(keep=options.resume)
        raise
    return sinks


@contextmanager
def kept_outputs(
    opened: Callable[[], Sinks], path: Path, header: Callable[[], Mapping[str, str]], resume: bool
) -> Iterator[tuple[Sinks, Journal]]:
    """The sinks that `opened` gives, and the journal of a run that writes them: a new one or, with `resume`, that of
    the run that is gone on with. Where another run has the output, none of its files is opened. When this is left, the
    outputs get their names and the journal is removed; after an error both stay, for a run that resumes, where any of
    it is finished. Raises BrickError."""
    sinks, journal = _gone_on_with(opened, path, header) if resume else _begun(opened, path, header)
    try:
        yield sinks, journal
    except BaseException as e:
        keep = is_kept(journal, resume)
        journal.close() if keep else journal.remove()
        for sink in sinks.values():
            sink.abandon(keep)
        if isinstance(e, BrickError) and journal.finished:
            raise type(e)(f"{e}; what is finished is kept, {_further(e)}") from e
        raise
    for sink in sinks.values():
        sink.close()
    journal.remove()


def is_kept(journal: Journal, resume: bool) -> bool:
    """Whether what a run wrote that ends early is of use to a later one."""
    return resume or bool(journal.finished)


def _further(error: BrickError) -> str:
    """How a later run goes on. An input that is written again is another one, which no run goes on with."""
    if isinstance(error, InputError):
        return "for --resume if the input can be read as it was: one that is written again is another input"
    return "and --resume goes on with it"


def _gone_on_with(
    opened: Callable[[], Sinks], path: Path, header: Callable[[], Mapping[str, str]]
) -> tuple[Sinks, Journal]:
    journal = Journal.resume(path, header())
    try:
        return opened(), journal
    except BaseException:
        journal.close()
        raise


def _begun(opened: Callable[[], Sinks], path: Path, header: Callable[[], Mapping[str, str]]) -> tuple[Sinks, Journal]:
    """The output is made before its journal: a journal that is there says that there is an output to go on with."""
    with JournalPlace(path) as place:
        sinks = opened()
        try:
            return sinks, Journal.create(place, header())
        except BaseException:
            for sink in sinks.values():
                sink.abandon()
            raise
