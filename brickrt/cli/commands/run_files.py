"""`brickrt run` on many files: one after the other through one runtime, in batches where the model takes some."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from brickrt.cli.failure import Failure
from brickrt.cli.inputs.feeds import Arrays, Feed, read_feed
from brickrt.cli.inputs.file_lists import InputFiles
from brickrt.cli.inputs.presets import Preprocessing, preprocessing
from brickrt.cli.outputs.files_report import FileResult, FilesRun, files_dict, files_text
from brickrt.cli.outputs.json_output import to_json
from brickrt.cli.outputs.value_summary import value_summary
from brickrt.cli.requests import RunRequest
from brickrt.cli.results.result_files import ResultFiles
from brickrt.cli.results.top_classes import top_classes
from brickrt.cli.terminal.interrupts import interruptible
from brickrt.cli.terminal.progress import shown_progress
from brickrt.cli.terminal.text import note
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.graph.onnx_import.tensor_info import TensorInfo
from brickrt.runtime.files.formats.file_formats import OF_NUMPY, format_of
from brickrt.runtime.progress import Progress
from brickrt.runtime.session.runtime import Runtime

MOST_FILES = 8  # in a batch, where the model leaves it open
MOST_BYTES = 32 * 2**20  # of such a batch's input


def command(request: RunRequest, source: SourceGraph, runs: Sequence[InputFiles]) -> str | Failure:
    """Runs the model on each of the files; gives what is printed of it. What goes wrong with one is a line, and the
    others are run all the same."""
    _check(request)
    with shown_progress(request.quiet) as progress:
        runtime = Runtime(source, **request.engine.arguments())
        job = FilesJob(request, source, runs, runtime, progress)
        with interruptible(runtime.cancel):
            job.run()
    report = files_dict(job.ran, runtime)
    text = "" if request.quiet else to_json(report) if request.json else files_text(report, request.verbose)
    failed = sum(result.error is not None for result in job.ran.results)
    others = ": the results of the others are there" if failed < len(runs) else ""
    why = f"{failed} of {len(runs)} failed, for the reasons above{others}"
    return Failure(text, why) if failed else text


def _check(request: RunRequest) -> None:
    """Refuses what is of one run."""
    watch = request.watch
    alone = {
        "--repeat": request.repeat != 1,
        "--verify": request.verify,
        "--trace": watch.trace,
        "--report": watch.report,
        "--open": watch.opened,
        "--dashboard": watch.dashboard,
    }
    wrong = [option for option, given in alone.items() if given]
    if wrong:
        raise BrickError(f"{wrong[0]} is of one run, on one file: leave it out, or give one file")


def is_stacked(source: SourceGraph, runs: Sequence[InputFiles]) -> bool:
    """Whether a single file is to fill a batch of several."""
    if len(source.inputs) != 1 or len(runs) != 1 or format_of(runs[0].main, OF_NUMPY):
        return False
    shape = next(iter(source.inputs.values())).shape
    return shape is not None and len(shape) >= 4 and isinstance(shape[0], int) and shape[0] > 1


def batch_size(source: SourceGraph, asked: Preprocessing, count: int) -> int:
    """How many of `count` files run at once: as many as the model says; where it leaves that open, and all are of one
    size, up to 8 and 32 MiB, evenly."""
    if len(source.inputs) != 1 or not all(_has_batch(info) for info in source.outputs.values()):
        return 1
    info = next(iter(source.inputs.values()))
    if info.shape is None or info.dtype is None or len(info.shape) < 2:
        return 1
    first, *rest = info.shape
    if isinstance(first, int):
        return first
    size = [224 if asked.crop and not isinstance(extent, int) else extent for extent in rest]
    if not all(isinstance(extent, int) for extent in size):
        return 1
    sample = math.prod(int(extent or 1) for extent in size) * info.dtype.itemsize
    most = max(1, min(MOST_FILES, MOST_BYTES // max(sample, 1)))
    return math.ceil(count / math.ceil(count / most))


def _has_batch(info: TensorInfo) -> bool:
    return info.shape is not None and len(info.shape) > 0 and info.shape[0] != 1


@dataclass(frozen=True)
class Loaded:
    """A file's arrays, or why there are none."""

    given: InputFiles
    feed: Feed
    error: str | None = None


@dataclass
class FilesJob:
    """The files of one command. The next batch is read, by as many threads as the network has, and the last one's
    results are written, while one runs."""

    request: RunRequest
    source: SourceGraph
    runs: Sequence[InputFiles]
    runtime: Runtime
    progress: Progress
    ran: FilesRun = field(default_factory=FilesRun)

    def __post_init__(self) -> None:
        self._image = preprocessing(self.source, self.request.inputs.image)
        self.ran.batch = batch_size(self.source, self._image, len(self.runs))
        output, threads = self.request.output, self.runtime.threads
        asked = self.request.result
        self._files = ResultFiles(output, self.runs, asked, self._image, threads) if output else None

    def run(self) -> None:
        """Runs all; `ran` has what became of them."""
        began = time.perf_counter()
        with ThreadPoolExecutor(self.runtime.threads) as reading, ThreadPoolExecutor(1) as writing:
            pending: Future[None] | None = None
            for batch in self._batches(reading):
                self.progress("files", len(self.ran.results), len(self.runs))
                outputs = self._execute(batch)
                if pending is not None:
                    pending.result()
                pending = writing.submit(self._finish, batch, outputs)
            if pending is not None:
                pending.result()
        self.ran.seconds = time.perf_counter() - began

    def _batches(self, reading: ThreadPoolExecutor) -> Iterator[list[Loaded]]:
        size = self.ran.batch
        chunks = [self.runs[k : k + size] for k in range(0, len(self.runs), size)]
        ahead = [reading.submit(self._read, given) for given in chunks[0]]
        for following in (*chunks[1:], ()):
            loaded = [one.result() for one in ahead]
            ahead = [reading.submit(self._read, given) for given in following]
            yield loaded

    def _read(self, given: InputFiles) -> Loaded:
        try:
            return Loaded(given, read_feed(self.source, given, self._image))
        except (BrickError, OSError) as e:
            return Loaded(given, Feed(), str(e))

    def _execute(self, batch: list[Loaded]) -> list[dict[str, Any] | str]:
        """The outputs of each file of a batch, or why there are none."""
        good = [loaded for loaded in batch if loaded.error is None]
        together = self._together([loaded.feed.arrays for loaded in good])
        try:
            if together is None:
                made = iter([self._outputs(loaded.feed.arrays) for loaded in good])
            else:
                made = iter(_apart(self._outputs(together), self.ran.batch))
            return [loaded.error or next(made) for loaded in batch]
        except BrickError as e:
            return [loaded.error or str(e) for loaded in batch]

    def _together(self, feeds: Sequence[Arrays]) -> Arrays | None:
        """One batch of the feeds, the last one repeated to fill it; None where they are run one by one."""
        size = self.ran.batch
        shapes = {tuple(array.shape) for arrays in feeds for array in arrays.values()}
        if size == 1 or len(shapes) != 1 or next(iter(shapes))[:1] != (1,):
            return None
        (name,) = feeds[0]
        arrays = [arrays[name] for arrays in feeds]
        return {name: np.concatenate([*arrays, *[arrays[-1]] * (size - len(arrays))])}

    def _outputs(self, arrays: Arrays) -> dict[str, Any]:
        began = time.perf_counter()
        outputs = self.runtime.execute(arrays)
        late = self.runtime.plan.measured.compile_ms
        self.ran.run_ms.append((time.perf_counter() - began) * 1e3 - late)
        self.ran.compile_ms += late
        return outputs

    def _finish(self, batch: list[Loaded], outputs: list[dict[str, Any] | str]) -> None:
        for loaded, made in zip(batch, outputs):
            result = FileResult(loaded.given.main)
            try:
                if isinstance(made, str):
                    raise BrickError(made)
                self._keep(result, loaded, made)
            except (BrickError, OSError) as e:
                said = str(e)
                result.error = said if result.file in said else f"{result.file}: {said}"
                note(result.error)
            self.ran.results.append(result)

    def _keep(self, result: FileResult, loaded: Loaded, outputs: dict[str, Any]) -> None:
        """Makes of outputs what was asked for: files, classes, or else a summary."""
        asked = self.request.result
        if self._files is not None:
            result.written = [str(path) for path in self._files.write(loaded.given, loaded.feed, outputs)]
        if asked.top is not None:
            scores = np.asarray(next(iter(outputs.values())))
            result.top = top_classes(self.source, scores, asked.top, asked.labels)
        result.outputs = [value_summary(name, value) for name, value in outputs.items()]


def _apart(outputs: dict[str, Any], size: int) -> list[dict[str, Any]]:
    """The outputs of each element of a batch, with a batch axis of 1."""
    for name, value in outputs.items():
        if not isinstance(value, np.ndarray) or value.shape[:1] != (size,):
            raise BrickError(f"the output '{name}' is not one for each of a batch of {size}: give files one by one")
    return [{name: value[k : k + 1] for name, value in outputs.items()} for k in range(size)]
