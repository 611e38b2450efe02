"""Watched runs in bounded memory: the dashboard while they go on, a report afterwards."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from brickrt.cli.files import check_files, write_text
from brickrt.cli.requests import RunRequest
from brickrt.cli.terminal.browser import check_opened, open_page
from brickrt.cli.terminal.progress import shown_progress
from brickrt.compare.machine import machine
from brickrt.dashboard.live.dashboard import Dashboard
from brickrt.dashboard.live.stream_frames import STREAM_FRAMES, progress_text
from brickrt.dashboard.live.stream_watch import StreamWatch
from brickrt.dashboard.report.memory_chart import MemoryOverTime
from brickrt.dashboard.report.stream_page import write_stream_report
from brickrt.dashboard.units import size_text
from brickrt.runtime.progress import Progress
from brickrt.runtime.stream.stream_job import StreamJob
from brickrt.runtime.stream.stream_report import StreamProgress
from brickrt.runtime.thread_count import thread_count
from brickrt.runtime.windows.window_job import WindowJob


class WatchedStream:
    """What was asked to be watched of one run."""

    def __init__(self, request: RunRequest) -> None:
        """Raises BrickError, before anything runs, for a report that could not be written."""
        self.wanted = request.watch
        check_opened(self.wanted.opened, self.wanted.report, "--report")
        if self.wanted.report is not None:
            check_files({"--report": self.wanted.report}, request.model)
        title = f"{request.model.name} → {request.output}"
        self.watch = StreamWatch(title, thread_count(request.engine.threads))
        self._spec: Any = None
        self._shows_nothing = request.quiet or self.wanted.dashboard
        self._bars: Progress = _quiet

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Gives a function to report long steps to, which the dashboard shows, or else a bar."""
        with shown_progress(self._shows_nothing) as self._bars:
            yield self._step

    def _step(self, what: str, done: int, total: int) -> None:
        self.watch.step(what, done, total)
        self._bars(what, done, total)

    def told(self, progress: StreamProgress) -> None:
        """See `Watch`."""
        self.watch.told(progress)
        self._bars(progress_text(progress), progress.bands, progress.all_bands)

    @contextmanager
    def shown(self, job: StreamJob | WindowJob) -> Iterator[None]:
        """Watches the run while this lasts, on the dashboard if asked for; q ends the run."""
        self._spec = job.pipeline.engine.spec
        if isinstance(job, WindowJob):
            self.watch.parts = "windows"
            self.watch.planned([f"windows, {job.planned.options.remark()}"], job.planned.memory.total, job.limit)
        else:
            self.watch.planned(_passes(job), job.candidate.memory.total, job.limit)
        wanted, watch = self.wanted, self.watch
        with ExitStack() as stack:
            if wanted.dashboard or wanted.report:
                stack.enter_context(watch)
            if wanted.dashboard:
                ending = "ending: --resume goes on"
                stack.enter_context(Dashboard(watch.frame_state, job.cancel, Path.cwd(), STREAM_FRAMES, ending))
            yield

    def figures(self) -> dict[str, Any]:
        """When each pass began and how long it took, in seconds; where it was watched, memory as [second, bytes]."""
        times = [
            {"name": name, "begin_s": round(begin, 3), "seconds": round(seconds, 3)}
            for name, begin, seconds in self.watch.pass_times()
        ]
        samples = [[round(second, 3), nbytes] for second, nbytes in self.watch.samples.kept]
        report = {} if self.wanted.report is None else {"report": str(self.wanted.report)}
        return {"pass_times": times} | ({"memory_samples": samples} if samples else {}) | report

    def write(self, told: dict[str, Any]) -> None:
        """Writes the report, if asked for; `told` is what `run --json` says."""
        path, watch = self.wanted.report, self.watch
        if path is None:
            return
        times = watch.pass_times()
        projected, limit, peak = (told[f"{word}_bytes"] for word in ("projected", "limit", "peak"))
        marks = [(0.0, "compiling"), *((begin, name) for name, begin, _ in times)]
        memory = MemoryOverTime(watch.samples.kept, projected, limit, peak, marks)
        about = {"title": watch.title, "summary": _summary(told), "environment": self._environment()}
        passes = {name: seconds for name, _, seconds in times}
        write_text(path, lambda out: write_stream_report(out, told, about, passes, memory))
        if self.wanted.opened:
            open_page(path)

    def _environment(self) -> dict[str, str]:
        found = machine(self._spec)
        libraries = ", ".join(f"{name} {version}" for name, version in found["libraries"].items())
        named = {name: str(found[name]) for name in ("brickrt", "commit", "cpu", "python", "system") if found[name]}
        return named | {"libraries": libraries, "command": shlex.join(["brickrt", *sys.argv[1:]])}


def _quiet(what: str, done: int, total: int) -> None:
    """Shows nothing."""


def _passes(job: StreamJob) -> list[str]:
    """A name for each way down the rows; the last pass may go down several strips."""
    numbers = [one.number for one in job.stream.sweeps]
    names = []
    for k, number in enumerate(numbers):
        strips = numbers.count(number)
        names.append(f"pass {number + 1}" + (f", strip {k - numbers.index(number) + 1}/{strips}" if strips > 1 else ""))
    return names


def _summary(told: dict[str, Any]) -> dict[str, str]:
    cards = {
        "most memory measured": size_text(told["peak_bytes"]),
        "projected": size_text(told["projected_bytes"]),
        "allowed": size_text(told["limit_bytes"]),
        "seconds of the run": f"{told['run_s']:.2f}",
        "read": size_text(told["bytes_read"]),
        "written": size_text(told["bytes_written"]),
    }
    if "window" in told:
        return cards | {"result": told["result"], "windows": f"{told['windows_run']} of {told['windows']}"}
    return cards | {"bands": f"{told['bands_run']} of {told['bands']}", "rows of a band": str(told["band_rows"])}
