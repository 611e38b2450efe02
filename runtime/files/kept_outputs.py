"""Outputs that are kept as far as they are written, with the journal that says how far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from brickrt.graph.errors import BrickError
from brickrt.runtime.files.journal import Journal
from brickrt.runtime.files.tensors import TensorSink


@contextmanager
def kept_outputs(
    sinks: Mapping[str, TensorSink], path: Path, header: Callable[[], Mapping[str, str]], resume: bool
) -> Iterator[Journal]:
    """The journal of a run that writes `sinks`: a new one or, with `resume`, that of the run that is gone on with. When
    this is left, the outputs get their names and the journal is removed; after an error both stay, for a run that
    resumes. Raises BrickError."""
    try:
        journal = Journal.resume(path, header()) if resume else Journal.create(path, header())
    except BaseException:
        for sink in sinks.values():
            sink.abandon(keep=resume)
        raise
    try:
        yield journal
    except BaseException as e:
        journal.close()
        for sink in sinks.values():
            sink.abandon(keep=True)
        if isinstance(e, BrickError):
            raise type(e)(f"{e}; what is finished is kept, and --resume goes on with it") from e
        raise
    for sink in sinks.values():
        sink.close()
    journal.remove()
