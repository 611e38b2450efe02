"""Bands at the end, and in the middle, of images of 2^31 and 2^40 elements have the bits of the same rows in core.

    x [1, 1, rows, columns] ─┬─ strided conv ─ dilated conv ─ transposed conv ─┬─ joined ─ conv ─ y
                             └──────────────────── max pool ───────────────────┘

No file has such an image: rows are made as they are read, and only those of a few bands are.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import brickrt
from brickrt.plan.stream.stream_plan import StreamPlan
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.stream.stream_program import StreamProgram
from brickrt.runtime.stream.sweep_run import Files, SweepWork
from tests.support.cpu.streams import plan_of, planner_of
from tests.support.graphs.onnx_models import model, node, tensor

HALO = 64  # rows that are more than a band needs of those beside it, and a multiple of all steps


def network(rows: int, columns: int) -> onnx.ModelProto:
    rng = np.random.default_rng(5)
    half = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
    nodes = [
        node("Conv", "x a", "half", **half),
        node("Conv", "half b", "wide", dilations=[4, 4], pads=[4, 4, 4, 4]),
        node("ConvTranspose", "wide c", "twice", kernel_shape=[2, 2], strides=[2, 2]),
        node("MaxPool", "x", "most", kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1]),
        node("Concat", "twice most", "joined", axis=1),
        node("Conv", "joined d", "y", pads=[1, 1, 1, 1]),
    ]
    shapes = {"a": (4, 1, 3, 3), "b": (4, 4, 3, 3), "c": (4, 2, 2, 2), "d": (1, 3, 3, 3)}
    weights = {name: rng.integers(-3, 4, shape).astype(np.float32) for name, shape in shapes.items()}
    return model(nodes, [tensor("x", [1, 1, rows, columns])], **weights)


def pixels(first: int, rows: int, columns: int) -> np.ndarray:
    """Rows of the image, [rows, columns], which no other rows are like."""
    at = np.arange(first, first + rows, dtype=np.int64)[:, None]
    return ((at * 31 + at // 97 + np.arange(columns) * 17) % 101 - 50).astype(np.float32)


class MadeRows:
    """Makes rows as they are read, and keeps those that are written, by the first."""

    def __init__(self) -> None:
        self.written: dict[int, np.ndarray] = {}

    def read(self, lo: tuple[int, ...], out: np.ndarray) -> None:
        assert lo[3] == 0
        out[0, 0] = pixels(lo[2], *out.shape[2:])

    def write(self, lo: tuple[int, ...], array: np.ndarray) -> None:
        self.written[lo[2]] = array[0, 0].copy()


def rows_of(stream: StreamPlan, band: int) -> tuple[int, np.ndarray]:
    """What one band gives, and its first row."""
    program_bands, rows = stream.bands(0, band, band + 1), MadeRows()
    isa, work = host_isa(choose_engine("cpu").spec), [SweepWork(0, program_bands)]
    StreamProgram(stream, isa, 2, stream.plan.graph.constants, work).run(Files({"x": rows}, {"y": rows}))
    ((first, found),) = rows.written.items()
    return first, found


@pytest.mark.parametrize(("rows", "columns", "height"), [(2**19, 2**12, 2**8), (2**32, 2**8, 2**14)])
def test_bands_of_large_images_have_the_bits_of_rows_in_core(rows: int, columns: int, height: int) -> None:
    stream = planner_of(plan_of(network(rows, columns))).stream_plan(height)
    (sweep,) = stream.sweeps
    assert rows * columns in (2**31, 2**40) and len(np.unique(sweep.like)) < 10
    for band in (sweep.schedule.bands // 2, sweep.schedule.bands - 1):
        first, found = rows_of(stream, band)
        end = min(first + height + HALO, rows)
        x = pixels(first - HALO, end - (first - HALO), columns)
        runtime = brickrt.Runtime(network(*x.shape).SerializeToString(), device="cpu", threads=2, exact=True)
        wanted = runtime.execute({"x": x[None, None]})["y"][0, 0, HALO : HALO + height]
        assert found.tobytes() == wanted.tobytes(), band
