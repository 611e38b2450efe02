"""Images at points: one operator where there are kernels, the host elsewhere; the same values as ONNX Runtime's."""

from __future__ import annotations

import numpy as np
import pytest

import brickrt
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.operators.sampling.grid_sample import LONGEST_AXIS, GridSample
from brickrt.ops.types import TensorType
from tests.support.graphs.builders_harness import one_node
from tests.support.graphs.onnx_models import by_onnxruntime, model, node, tensor

RNG = np.random.default_rng(5)


def data(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("opset", "mode"), [(16, "bilinear"), (16, "bicubic"), (20, "linear"), (20, "nearest")])
def test_values(opset, mode, padding, align):
    settings = {"mode": mode, "padding_mode": padding, "align_corners": align}
    proto, feeds = one_node("GridSample", opset, [data(2, 9, 5, 7), data(2, 4, 6, 2)], 1, **settings)
    runtime = brickrt.Runtime(proto, device="cpu")
    (actual,), (expected,) = runtime.execute(feeds).values(), by_onnxruntime(proto, feeds).values()
    assert not runtime.fallback
    np.testing.assert_allclose(actual, expected, 1e-4, 2e-5)


@pytest.mark.parametrize(("dtype", "points", "most"), [("float16", "float16", 2e-3), ("float32", "float64", 1e-5)])
def test_other_types(dtype, points, most):
    """ONNX Runtime has these types on no CPU: the same numbers in float32."""
    arrays = [data(2, 20, 5, 7).astype(dtype), data(2, 4, 6, 2).astype(points)]
    proto, feeds = one_node("GridSample", 20, arrays, 1)
    wide, wide_feeds = one_node("GridSample", 20, [array.astype(np.float32) for array in arrays], 1)
    runtime = brickrt.Runtime(proto, device="cpu")
    (actual,), (expected,) = runtime.execute(feeds).values(), by_onnxruntime(wide, wide_feeds).values()
    assert not runtime.fallback and actual.dtype == dtype
    np.testing.assert_allclose(actual, expected, most, most)


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize(
    ("image", "points", "possible"),
    [
        (data(1, 3, 5, 7), data(1, 4, 6, 2), True),
        (data(1, 3, 5, 7, 2), data(1, 4, 6, 2, 3), True),
        (data(1, 3, 5), data(1, 4, 1), False),
        (data(1, 3, 5, 7, dtype=np.float16), data(1, 4, 6, 2, dtype=np.float16), True),
        (data(1, 3, 5, 7), data(1, 4, 6, 2, dtype=np.float64), True),
        (data(1, 3, 5, 7, dtype=np.float64), data(1, 4, 6, 2, dtype=np.float64), False),
        (data(1, 3, 0, 7), data(1, 4, 6, 2), False),
        (np.zeros((1, 1, 1, LONGEST_AXIS + 1), np.float32), data(1, 4, 6, 2), False),
    ],
    ids=["image", "volume", "signal", "float16", "points of float64", "float64", "empty", "long"],
)
def test_what_has_kernels(image, points, possible, kernels):
    proto, feeds = one_node("GridSample", 20, [image, points], 1)
    types = {name: TensorType(array.shape, array.dtype) for name, array in feeds.items()}
    found = specialize(first_stage(load(proto)), types, {}, cpu_operators=kernels)
    assert any(isinstance(n.op, GridSample) for n in found.graph.nodes) == (kernels and possible)
    assert len(found.host_nodes) == 1 - (kernels and possible)


def test_images_of_a_network_of_open_sizes():
    """Points of a field that the network computes; its sizes are one program's."""
    nodes = [
        node("Conv", "x w", "field", pads=[1, 1, 1, 1]),
        node("Transpose", "field", "grid", perm=[0, 2, 3, 1]),
        node("GridSample", "x grid", "y", padding_mode="border"),
    ]
    weights = 0.1 * data(2, 9, 3, 3)
    proto = model(nodes, [tensor("x", [1, 9, "H", "W"])], opset=16, w=weights)
    runtime = brickrt.Runtime(proto, device="cpu")
    for height, width in ((17, 23), (40, 31), (5, 64)):
        feeds = {"x": data(1, 9, height, width)}
        expected = by_onnxruntime(proto, feeds)["y"]
        np.testing.assert_allclose(runtime.execute(feeds)["y"], expected, 1e-4, 1e-4)
