"""What operators of this package take while they compute is what they are counted for."""

from __future__ import annotations

import tracemalloc

import numpy as np
import onnx
import pytest

from brickrt.graph.host.evaluator import node_evaluator
from brickrt.graph.host.host_operator import operator_of
from brickrt.graph.onnx_import.element_types import element_type
from tests.support.graphs.onnx_models import node

RANDOM = np.random.default_rng(0)
SMALL = 1 << 17
"""Bytes of the reference's own objects."""
ROIS = np.sort(RANDOM.random((40, 2, 2)).astype(np.float32), 1).reshape(-1, 4) * 50


def f(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


ALIGNED = node("RoiAlign", "a b c", "y", output_height=7, output_width=7, sampling_ratio=2)
CASES: dict[str, tuple[onnx.NodeProto, list[np.ndarray]]] = {
    "top": (node("TopK", "a b", "y z"), [f(60, 4000), np.array([300])]),
    "top of ties": (node("TopK", "a b", "y z"), [f(60, 4000).round(1), np.array([3000])]),
    "top of an outer axis": (node("TopK", "a b", "y z", axis=0), [f(4000, 60).astype(np.float64), np.array([300])]),
    "integers": (
        node("MatMul", "a b", "y"),
        [np.full((200, 300), 1 << 20, np.int32), np.full((300, 900), 9, np.int32)],
    ),
    "moved taps": (
        node("DeformConv", "a b c", "y", pads=[1, 1, 1, 1]),
        [f(2, 16, 100, 100), f(16, 16, 3, 3), f(2, 18, 100, 100)],
    ),
    "moved taps of float64": (
        node("DeformConv", "a b c", "y", pads=[1, 1, 1, 1]),
        [x.astype(np.float64) for x in (f(1, 2, 70, 90), f(3, 2, 3, 3), f(1, 18, 70, 90))],
    ),
    "regions": (ALIGNED, [f(1, 48, 50, 60), ROIS, np.zeros(40, np.int64)]),
    "regions of float64": (ALIGNED, [f(1, 48, 50, 60).astype(np.float64), ROIS, np.zeros(40, np.int64)]),
}


@pytest.mark.parametrize("name", CASES)
def test_no_more_than_is_counted_and_not_far_less(name: str) -> None:
    proto, arrays = CASES[name]
    feeds = dict(zip(proto.input, arrays, strict=True))
    runs = node_evaluator(proto, {"": 19}, {name: element_type(x) for name, x in feeds.items()})
    runs.run(None, feeds)  # what is compiled stays
    tracemalloc.start()
    runs.run(None, feeds)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    widest = max(x.itemsize for x in arrays)
    operator = operator_of(proto)
    made = operator.most_elements(proto, arrays) * widest
    counted = operator.needed_bytes(proto, arrays, made, sum(x.nbytes for x in arrays))
    assert peak <= counted + SMALL
    assert counted <= 8 * peak


def test_a_detector_s_thousand_regions_take_little_more_than_their_bins():
    x, rois = np.empty((1, 256, 100, 136), np.float32), np.repeat(ROIS, 25, 0)
    arrays = [x, rois, np.zeros(1000, np.int64)]
    bins = 1000 * 256 * 7 * 7
    operator = operator_of(ALIGNED)
    assert operator.most_elements(ALIGNED, arrays) == bins
    assert operator.needed_bytes(ALIGNED, arrays, 4 * bins, 0) < 4 * bins + 2 * x.nbytes
