"""The host's time per run: how long `run` and `execute` take to put one on a stream, and to have one done.

    python -m bench.gpu.asks.host [--networks …] [--device cuda|null] [--runs 2000]

With `--device null`, on any machine: a driver whose calls cost nothing, so the figures are Python's alone.
Microseconds, the median of windows of runs: with arrays of the device on a stream (same: those of the last run; new: an
output array is made for each), and with arrays of NumPy, whose time has the copies in it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from bench.gpu.support.common import built, each, engine, random_feeds
from bench.gpu.support.items import Item, options, run
from bench.gpu.support.null_driver import NullArray
from brickrt.runtime.session import runtime as runtimes
from brickrt.runtime.session.runtime import Runtime

WINDOWS = 20


def per_call(call: Callable[[], Any], wait: Callable[[], Any], runs: int) -> float:
    """Microseconds; few enough calls a window that no queue of the device is full."""
    times = []
    for _ in range(WINDOWS):
        wait()
        start = time.perf_counter()
        for _ in range(runs // WINDOWS):
            call()
        times.append((time.perf_counter() - start) / (runs // WINDOWS) * 1e6)
    wait()
    return median(times)


def measure(name: str, null: bool, runs: int) -> dict[str, Any]:
    """Microseconds of the ways to run a network."""
    model = built(name, size=None)
    feeds = random_feeds(model)
    if null:
        runtimes.choose_engine = lambda *_: engine("null")
    runtime = Runtime(model, device="cuda")
    runtime.execute(feeds)
    (program,) = runtime.plan.programs
    if null:
        there: dict[str, Any] = {key: NullArray(array.shape, array.dtype) for key, array in feeds.items()}
        stream, wait = 0, lambda: None
    else:
        import cupy

        stream = cupy.cuda.Stream(non_blocking=True)
        there, wait = {key: cupy.asarray(array) for key, array in feeds.items()}, stream.synchronize
    outputs = list(runtime.execute(there, stream=stream).values())
    inputs = [there[key] for key in program.tasks.plan.graph.inputs]
    given = [np.asarray(feeds[key]) for key in program.tasks.plan.graph.inputs]
    results = [np.empty(array.shape, array.dtype) for array in outputs]
    return {
        "run_same_us": per_call(lambda: program.run(inputs, outputs, stream=stream), wait, runs),
        "execute_new_us": per_call(lambda: runtime.execute(there, stream=stream), wait, runs),
        "run_numpy_us": per_call(lambda: program.run(given, results), wait, runs // 10),
        "execute_numpy_us": per_call(lambda: runtime.execute(feeds), wait, runs // 10),
    }


def main() -> int:
    """Measures the networks that the command line names."""
    parser = options(__doc__)
    parser.add_argument("--networks", default="resnet50,mobilenetv2,nafnet")
    parser.add_argument("--runs", type=int, default=2000)
    asked = parser.parse_args()
    null = asked.device != "cuda"
    return run((Item(name, partial(measure, name, null, asked.runs)) for name in each(asked.networks)), asked)


if __name__ == "__main__":
    sys.exit(main())
