"""Measures one engine in a process of its own, whose memory no other engine takes.

    python -m brickrt.demo.child ENGINE FOLDER THREADS RUNS

`FOLDER` holds noisy.npy and clean.npy, bytes [height, width, 3]. Prints what `measured` gives as one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from brickrt.compare import peers
from brickrt.compare.peers import ComparedEngine, Feeds
from brickrt.demo.network import INPUT, network
from brickrt.demo.photo import as_input, as_picture, psnr
from brickrt.runtime.session.runtime import Runtime
from brickrt.runtime.stream.resident import status_bytes

PAUSE = 0.1  # seconds: an engine's threads may spin on after a run
MOST_TIMED_SECONDS = 4.0  # after which no more runs begin
FIRST_PICTURE_EDGE = 64  # of the picture that brings an engine's libraries into memory


def _bricks(feeds: Feeds, threads: int) -> ComparedEngine:
    return peers.ours(Runtime(network(), device="cpu", threads=threads), feeds)


def _layerwise(feeds: Feeds, threads: int) -> ComparedEngine:
    return peers.ours(Runtime(network(), device="cpu", threads=threads, strategy="layerwise"), feeds)


def _onnxruntime(feeds: Feeds, threads: int) -> ComparedEngine:
    return peers.onnxruntime(network(), feeds, threads)


MAKERS: dict[str, Callable[[Feeds, int], ComparedEngine]] = {
    "bricks": _bricks,
    "layerwise": _layerwise,
    "onnxruntime": _onnxruntime,
}


def measured(engine: str, folder: Path, threads: int, runs: int) -> dict[str, Any]:
    """`ms` of at most `runs` runs, after one that is not counted; `peak_bytes`, the most by which memory grew once the
    libraries were loaded; `psnr` of the result."""
    make = MAKERS[engine]
    make({INPUT: np.zeros((1, 3, FIRST_PICTURE_EDGE, FIRST_PICTURE_EDGE), np.float32)}, threads).run()
    feeds = {INPUT: as_input(np.load(folder / "noisy.npy"))}
    before = status_bytes("VmRSS")
    ms, output = _timed(make(feeds, threads).run, runs)
    peak = status_bytes("VmHWM")
    grown = None if before is None or peak is None else peak - before
    return {"ms": ms, "peak_bytes": grown, "psnr": psnr(as_picture(output), np.load(folder / "clean.npy"))}


def _timed(run: Callable[[], list[Any]], runs: int) -> tuple[list[float], np.ndarray]:
    """Milliseconds of each run, after one that is not counted, and the last output; fewer runs where they are long."""
    ms: list[float] = []
    outputs = run()
    while len(ms) < runs and sum(ms) < MOST_TIMED_SECONDS * 1e3:
        del outputs
        time.sleep(PAUSE)
        started = time.perf_counter()
        outputs = run()
        ms.append((time.perf_counter() - started) * 1e3)
    return ms, outputs[0]


if __name__ == "__main__":
    engine, folder, threads, runs = sys.argv[1:]
    print(json.dumps(measured(engine, Path(folder), int(threads), int(runs))))
