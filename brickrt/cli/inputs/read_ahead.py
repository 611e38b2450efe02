"""Reading the files of a run while its model is planned and compiled, which takes their sizes alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from brickrt.cli.inputs.feeds import Arrays, Feed, expected_arrays
from brickrt.cli.inputs.file_lists import InputFiles
from brickrt.cli.inputs.gather import gather
from brickrt.cli.inputs.presets import preprocessing
from brickrt.cli.requests import InputRequest
from brickrt.graph.onnx_import.source import SourceGraph

SWITCHING = 2e-4  # seconds between threads: decoders ask for Python often, and would wait 5 ms each time


@dataclass(frozen=True)
class FeedAhead:
    """What one run takes, which another thread reads. `like` has the types and shapes of its arrays and is there at
    once, where headers of files tell them."""

    reading: Future[tuple[Feed, list[str]]]
    like: Arrays | None

    def read(self) -> tuple[Feed, list[str]]:
        """What `gather` gives, once it is there; raises what it raises."""
        return self.reading.result()

    def types(self) -> tuple[Arrays, list[str]]:
        """Arrays to compile for, of which the values do not count, and the open dimensions for which 1 was taken."""
        if self.like is not None and not self.reading.done():
            return self.like, []
        feed, assumed = self.read()
        return feed.arrays, assumed


@contextmanager
def reading_ahead(source: SourceGraph, request: InputRequest, runs: Sequence[InputFiles]) -> Iterator[FeedAhead]:
    """Reads what one run takes in a thread while this lasts. Raises InputError for files that are no images."""
    usual = sys.getswitchinterval()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(gather, source, request)
        sys.setswitchinterval(SWITCHING)
        try:
            like = expected_arrays(source, runs[0], preprocessing(source, request.image)) if len(runs) == 1 else None
            yield FeedAhead(reading, like)
        finally:
            sys.setswitchinterval(usual)
