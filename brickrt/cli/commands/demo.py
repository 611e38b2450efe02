"""`brickrt demo`: denoises a photograph, shows the runs, and compares engines."""

from __future__ import annotations

import io
import os
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING

from brickrt.cli.files import check_writable, write_whole
from brickrt.cli.layerwise_traffic import layerwise_traffic
from brickrt.cli.outputs.demo_report import demo_about, demo_dict, demo_text
from brickrt.cli.outputs.json_output import to_json
from brickrt.cli.requests import DemoRequest
from brickrt.cli.terminal.interrupts import interruptible
from brickrt.cli.terminal.progress import shown_progress
from brickrt.cli.terminal.watch import dashboard_of
from brickrt.dashboard.live.watched_runs import WatchedRuns
from brickrt.dashboard.recording import GraphRun, Recorder, Together
from brickrt.dashboard.report.page import write_report
from brickrt.graph.errors import BrickError
from brickrt.runtime.events import Observer
from brickrt.runtime.session.runtime import Runtime
from brickrt.runtime.thread_count import thread_count

if TYPE_CHECKING:
    import numpy as np

    from brickrt.demo.engines import DemoPictures

SIZES = 64, 16384  # pixels along an edge: the noise must show, and memory hold it
WATCHED_RUNS = 2  # that the report is about


@dataclass(frozen=True)
class Denoised:
    """The result as bytes [height, width, 3], and the runs that gave it."""

    picture: np.ndarray
    runs: list[GraphRun]


def command(request: DemoRequest) -> str:
    """Runs and measures the denoiser, and writes its files; gives what is printed of it."""
    _check(request)
    from brickrt.demo import photo  # needs Pillow
    from brickrt.demo.engines import ENGINES, DemoPictures, measure

    clean = photo.photograph(request.size)
    subject = DemoPictures(clean, photo.noisy(clean, request.seed), thread_count(request.threads), request.runs)
    denoised = _denoise(subject, sys.stderr.isatty())
    found = {}
    with shown_progress() as progress:
        for number, engine in enumerate(ENGINES):
            progress(f"measuring {engine}", number, len(ENGINES))
            found[engine] = measure(engine, subject)
    quality = {name: photo.psnr(p, clean) for name, p in (("before", subject.noisy), ("after", denoised.picture))}
    report = demo_dict(request, subject.threads, quality, found)
    report["written"] = _write(request.out, subject, denoised, demo_about(report))
    return to_json(report) if request.json else demo_text(report)


def _check(request: DemoRequest) -> None:
    """Raises BrickError, before any work, for options that cannot work."""
    thread_count(request.threads)
    least, most = SIZES
    if not least <= request.size <= most:
        raise BrickError(f"--size {request.size} is impossible: give a number from {least} to {most}")
    if find_spec("PIL") is None:
        raise BrickError('the demo needs Pillow for its pictures: pip install "brickrt[images]"')
    if request.out.exists() and not request.out.is_dir():
        raise BrickError(f"--output {request.out}: is a file: give a folder's name")
    if not request.out.exists():
        check_writable(request.out)
    elif not os.access(request.out, os.W_OK | os.X_OK):
        raise BrickError(f"--output {request.out}: cannot be written: check the permissions, or give another folder")


def _denoise(subject: DemoPictures, dashboard: bool) -> Denoised:
    """Several watched runs, the first of which is not in the report."""
    from brickrt.demo.network import INPUT, network
    from brickrt.demo.photo import as_input, as_picture

    recorder, watched = Recorder(), WatchedRuns("taking out the noise", 1 + WATCHED_RUNS)
    observers: list[Observer] = [recorder, watched.run_state] if dashboard else [recorder]
    feeds = {INPUT: as_input(subject.noisy)}
    with shown_progress() as progress:
        watch = Together(observers)
        runtime = Runtime(network(), device="cpu", threads=subject.threads, progress=progress, watch=watch)
        prepared = runtime.prepare(feeds)
        if dashboard:
            watched.compiled(prepared, layerwise_traffic(prepared))
    watched.start()
    with interruptible(runtime.cancel), dashboard_of(watched) if dashboard else nullcontext():
        output = _repeated(runtime, feeds, watched)
    return Denoised(as_picture(output), recorder.recording.graphs[1:] or recorder.recording.graphs)


def _repeated(runtime: Runtime, feeds: dict[str, np.ndarray], watched: WatchedRuns) -> np.ndarray:
    """The last run's output; q ends after the run under way."""
    from brickrt.demo.network import OUTPUT

    times = watched.latency_ms
    while not times or (len(times) < watched.runs and not watched.quit):
        started = time.perf_counter()
        output = runtime.execute(feeds)[OUTPUT]
        times.append((time.perf_counter() - started) * 1e3)
    return output


def _write(folder: Path, subject: DemoPictures, denoised: Denoised, about: dict[str, object]) -> list[str]:
    """Writes pictures and report, each whole; gives their paths."""
    from brickrt.demo.photo import png, side_by_side

    crops = side_by_side({"before": subject.noisy, "after": denoised.picture})
    page = io.StringIO()
    write_report(page, denoised.runs, about)
    files = {
        "before.png": png(subject.noisy),
        "after.png": png(denoised.picture),
        "side-by-side.png": png(crops),
        "report.html": page.getvalue().encode(),
    }
    try:
        folder.mkdir(exist_ok=True)
    except OSError as e:
        raise BrickError(f"--output {folder}: cannot be created ({e.strerror}): give another folder") from e
    for name, data in files.items():
        write_whole(folder / name, partial(_put, data))
    return [str(folder / name) for name in files]


def _put(data: bytes, file: IO[bytes]) -> None:
    file.write(data)
