"""Convolutions whose taps move: columns and a 1×1 convolution where there are kernels, the host elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import brickrt
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.operators.sampling.deformed_columns import DeformedColumns
from brickrt.ops.types import TensorType
from tests.support.graphs.builders_harness import one_node
from tests.support.graphs.onnx_models import by_onnxruntime, model, node, tensor

RNG = np.random.default_rng(5)


def data(*shape: int, spread: float = 1.0) -> np.ndarray:
    return (spread * RNG.standard_normal(shape)).astype(np.float32)


def compare(inputs: list[np.ndarray | None], host: bool = False, atol: float = 1e-4, **settings: object) -> None:
    proto, feeds = one_node("DeformConv", 19, inputs, 1, **settings)
    runtime = brickrt.Runtime(proto, device="cpu")
    (actual,), (expected,) = runtime.execute(feeds).values(), by_onnxruntime(proto, feeds).values()
    assert bool(runtime.fallback) == host
    np.testing.assert_allclose(actual, expected, 1e-3, atol)


@pytest.mark.parametrize(("channels", "groups"), [(4, 1), (4, 2), (32, 1), (32, 4), (48, 2)])
def test_values(channels, groups):
    """With strides, dilations, uneven padding and a mask; planes, whole blocks, parts of blocks."""
    offsets, mask = data(2, groups * 12, 4, 9, spread=2.0), data(2, groups * 6, 4, 9)
    inputs = [data(2, channels, 7, 8), data(5, channels, 3, 2), offsets, data(5), mask]
    compare(inputs, strides=[2, 1], dilations=[1, 2], pads=[1, 2, 2, 1], offset_group=groups)


def test_without_bias_and_mask():
    compare([data(1, 2, 4, 5), data(3, 2, 2, 2), data(1, 8, 3, 4)])


def test_filters_of_groups_stay_on_the_host():
    compare([data(1, 4, 5, 6), data(4, 2, 2, 2), data(1, 8, 4, 5)], host=True, group=2)


def test_half_precision():
    """Computed in float32; ONNX Runtime has no kernel."""
    inputs = [data(1, 3, 6, 7), data(4, 3, 3, 3, spread=0.3), data(1, 18, 6, 7)]
    proto, feeds = one_node("DeformConv", 19, inputs, 1, pads=[1] * 4)
    narrow, narrow_feeds = one_node("DeformConv", 19, [x.astype(np.float16) for x in inputs], 1, pads=[1] * 4)
    (found,) = brickrt.Runtime(narrow, device="cpu").execute(narrow_feeds).values()
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, *by_onnxruntime(proto, feeds).values(), 0.02, 0.02)


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize(
    ("dtype", "rank", "possible"),
    [("float32", 2, True), ("float32", 3, True), ("float64", 2, False), ("float32", 1, False)],
)
def test_what_has_kernels(dtype, rank, possible, kernels):
    arrays = [data(1, 2, *(5,) * rank), data(3, 2, *(2,) * rank), data(1, rank * 2**rank, *(4,) * rank)]
    proto, feeds = one_node("DeformConv", 19, [x.astype(dtype) for x in arrays], 1)
    types = {name: TensorType(array.shape, array.dtype) for name, array in feeds.items()}
    found = specialize(first_stage(load(proto)), types, {}, cpu_operators=kernels)
    assert any(isinstance(n.op, DeformedColumns) for n in found.graph.nodes) == (kernels and possible)
    assert len(found.host_nodes) == 1 - (kernels and possible)


@pytest.mark.parametrize("shape", [(1, 18, 4, 5), (1, 8, 4, 6), (2, 8, 4, 5), (1, 8, 4)])
def test_offsets_of_another_window_are_refused(shape):
    proto, feeds = one_node("DeformConv", 19, [data(1, 2, 5, 6), data(3, 2, 2, 2), data(*shape)], 1)
    with pytest.raises(BrickError, match=r"offsets .* must have the shape \[1, 8, 4, 5\]"):
        brickrt.Runtime(proto, device="cpu").execute(feeds)


def test_columns_exist_by_the_brick_only():
    """Columns are nine times as large as the image; offsets and factors are computed of it, for open sizes."""
    nodes = [
        node("Conv", "x f", "offsets", pads=[1] * 4),
        node("Conv", "x g", "h", pads=[1] * 4),
        node("Sigmoid", "h", "factors"),
        node("DeformConv", "x w offsets b factors", "y", pads=[1] * 4, kernel_shape=[3, 3]),
        node("Relu", "y", "z"),
    ]
    weights = {"f": data(18, 16, 3, 3, spread=0.1), "g": data(9, 16, 3, 3), "w": data(16, 16, 3, 3), "b": data(16)}
    proto = model(nodes, [tensor("x", [1, 16, "H", "W"])], "z", opset=19, **weights)
    runtime = brickrt.Runtime(proto, device="cpu")
    for height, width in ((17, 23), (200, 160), (5, 64)):
        feeds = {"x": data(1, 16, height, width)}
        np.testing.assert_allclose(runtime.execute(feeds)["z"], by_onnxruntime(proto, feeds)["z"], 1e-3, 1e-3)
    assert not runtime.fallback
