"""Makes the README's pictures of the dashboard and of the report, from runs on this machine. Needs Chromium or Chrome.

python scripts/pictures.py docs
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console
from rich.segment import SegmentLines

from brickrt import Runtime, zoo
from brickrt.cli.layerwise_traffic import layerwise_traffic
from brickrt.cli.outputs.run_report import run_dict
from brickrt.cli.terminal.about_run import about_run
from brickrt.dashboard.live.frame_state import FrameState
from brickrt.dashboard.live.frames import frame
from brickrt.dashboard.live.lines import Line
from brickrt.dashboard.live.run_state import COMPLETE
from brickrt.dashboard.live.watched_runs import WatchedRuns
from brickrt.dashboard.recording import Recorder, Together
from brickrt.dashboard.report.page import write_report

NETWORK, SIZE, STRATEGY, BRICK = "nafnet", 512, "memoized", 32
RUNS = 8
SCREEN = 110, 32  # columns and rows
PAGE = 1280, 1500  # pixels
LARGEST = 200_000  # bytes
BROWSERS = "chromium", "chromium-browser", "google-chrome"


def main() -> None:
    """Runs the network, and writes both pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    watched, recorder = WatchedRuns(f"{NETWORK} {SIZE}×{SIZE}", RUNS), Recorder()
    watch = Together([recorder, watched.run_state])
    runtime = Runtime(zoo.build(NETWORK, size=SIZE), device="cpu", strategy=STRATEGY, brick=BRICK, watch=watch)
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 3, SIZE, SIZE)).astype(np.float32)}
    prepared = runtime.prepare(feeds)
    watched.compiled(prepared, layerwise_traffic(prepared))
    watched.start()
    running = threading.Thread(target=_run, args=(runtime, feeds, watched))
    running.start()
    state = _most_telling(_frame_states(watched, running))
    running.join()
    _write(folder / "dashboard.svg", _drawn(frame(state, *SCREEN)).encode())
    _write(folder / "report.png", _photographed(_page(runtime, watched, recorder)))


def _run(runtime: Runtime, feeds: dict[str, np.ndarray], watched: WatchedRuns) -> None:
    for _ in range(RUNS):
        started = time.perf_counter()
        runtime.execute(feeds)
        watched.latency_ms.append((time.perf_counter() - started) * 1e3)


def _frame_states(watched: WatchedRuns, running: threading.Thread) -> Iterator[FrameState]:
    while running.is_alive():
        time.sleep(0.01)
        yield watched.frame_state()


def _most_telling(states: Iterator[FrameState]) -> FrameState:
    """The one whose brick map is nearest to half done, once there are times."""
    return min((state for state in states if any(row.busy_us for row in state.rows)), key=_distance_from_half)


def _distance_from_half(state: FrameState) -> float:
    moment = state.moment
    if moment is None or state.run >= state.runs:
        return 1.0
    owner, _, _ = moment.labels.grid(moment.subgraph)
    return abs(float((moment.states[owner] == COMPLETE).mean()) - 0.5) if len(owner) > 100 else 1.0


def _drawn(lines: list[Line]) -> str:
    """Lines of a screen as SVG, with fonts of the viewer's own."""
    console = Console(record=True, width=SCREEN[0], height=SCREEN[1], file=io.StringIO(), force_terminal=True)
    console.print(SegmentLines(lines, new_lines=True), end="")
    svg = console.export_svg(title="brickrt run nafnet.onnx --random --dashboard")
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)


def _page(runtime: Runtime, watched: WatchedRuns, recorder: Recorder) -> str:
    times = watched.latency_ms
    latency = {"first": times[0], "median": float(np.median(times)), "min": min(times), "max": max(times)}
    told = run_dict(runtime, {}, latency, 0.0, None, {}) | {"runs": len(times)}
    page = io.StringIO()
    write_report(page, recorder.recording.graphs, about_run(runtime, told))
    return page.getvalue()


def _photographed(page: str) -> bytes:
    """The top of a page in a browser, as PNG of few colours."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"none of {', '.join(BROWSERS)} is installed")
    with tempfile.TemporaryDirectory() as folder:
        file, shot = Path(folder, "report.html"), Path(folder, "shot.png")
        file.write_text(page, encoding="utf-8")
        options = "--headless --no-sandbox --disable-gpu --hide-scrollbars --virtual-time-budget=2000".split()
        where = [f"--user-data-dir={folder}/profile", f"--screenshot={shot}", f"--window-size={PAGE[0]},{PAGE[1]}"]
        subprocess.run([browser, *options, *where, str(file)], check=True, capture_output=True, timeout=120)
        small = io.BytesIO()
        Image.open(shot).convert("RGB").quantize(128).save(small, "PNG", optimize=True)
    return small.getvalue()


def _write(path: Path, data: bytes) -> None:
    if len(data) > LARGEST:
        raise SystemExit(f"{path}: {len(data)} bytes, more than {LARGEST}")
    path.write_bytes(data)


if __name__ == "__main__":
    main()
