"""One network, inputs of many sizes: python any_size.py

A network whose sizes are open is compiled for each size when it comes for the first time, in well under a second, and
all of these programs are kept, up to 2 GiB of them.
"""

from __future__ import annotations

import time

import numpy as np

import brickrt
from brickrt import zoo


def seconds(runtime: brickrt.Runtime, size: tuple[int, int]) -> tuple[float, float]:
    """The times of the first and of the second call with images of a size."""
    x = np.random.default_rng(0).random((1, 3, *size), np.float32)
    times = []
    for _ in range(2):
        started = time.perf_counter()
        runtime.execute({"x": x})
        times.append(time.perf_counter() - started)
    return times[0], times[1]


def network(**options: int) -> bytes:
    """A restoration network of the zoo, of open size and batch."""
    return zoo.build("nafnet", batch="N", size=0, **options).SerializeToString()


if __name__ == "__main__":
    with brickrt.Runtime(network()) as runtime:
        for size in ((64, 64), (96, 80), (120, 200), (64, 64)):
            first, second = seconds(runtime, size)
            print(f"{size[0]}×{size[1]}: first {first:.3f} s, then {second:.3f} s")
