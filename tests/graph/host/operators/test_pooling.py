"""Maxima of windows and regions, where they are, and values put there, on the host, against ONNX Runtime."""

from __future__ import annotations

import math

import numpy as np
import pytest

from brickrt.graph.host.run_host_node import run_node
from brickrt.graph.onnx_import.protobuf import onnx_node
from tests.support.graphs.builders_harness import one_node
from tests.support.graphs.onnx_models import by_onnxruntime, compare_on_host, node

RANDOM = np.random.default_rng(8)

CASES = {
    "1d": ((2, 3, 9), {"kernel_shape": [3]}),
    "1d strided, padded": ((2, 3, 9), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    "stride 1": ((2, 3, 9, 3), {"kernel_shape": [2, 2]}),
    "stride 1, padded": ((2, 3, 5, 6), {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]}),
    "halves": ((2, 4, 8, 7), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "dilated": ((1, 2, 9, 8), {"kernel_shape": [2, 3], "dilations": [3, 2], "strides": [1, 2]}),
    "rounded up": ((1, 3, 7, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "padded alike": ((1, 3, 7, 8), {"kernel_shape": [3, 3], "strides": [2, 3], "auto_pad": "SAME_LOWER"}),
    "by columns": ((2, 3, 6, 5), {"kernel_shape": [2, 2], "strides": [2, 1], "storage_order": 1}),
    "3d": ((2, 2, 4, 5, 6), {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2], "pads": [0, 1, 0, 1, 1, 1]}),
}


@pytest.mark.parametrize("kind", ["float32", "ties", "uint8"])
@pytest.mark.parametrize("name", CASES)
def test_places_of_maxima(name: str, kind: str) -> None:
    """The first of equal ones counts."""
    shape, attrs = CASES[name]
    x = RANDOM.integers(0, 3, shape) if kind == "ties" else RANDOM.standard_normal(shape) * 99
    model, feeds = one_node("MaxPool", 12, [x.astype(np.uint8 if kind == "uint8" else np.float32)], 2, **attrs)
    actual = run_node(onnx_node(model.graph.node[0], {"": 12}, "n"), {"": 12}, feeds)
    for found, wanted in zip(actual, by_onnxruntime(model, feeds).values(), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


UNPOOLED = {
    "1d": ((2, 3, 5), {"kernel_shape": [3], "strides": [2]}, (11,)),
    "padded": ((1, 2, 4, 3), {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1]}, (7, 7)),
    "stride 1": ((2, 1, 4, 3), {"kernel_shape": [1, 2]}, (4, 4)),
    "3d": ((1, 2, 2, 3, 2), {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}, (4, 6, 4)),
}


@pytest.mark.parametrize("name", UNPOOLED)
def test_values_are_put_where_offsets_say(name: str) -> None:
    shape, attrs, space = UNPOOLED[name]
    count = math.prod((*shape[:2], *space))
    offsets = RANDOM.permutation(count)[: math.prod(shape)].reshape(shape)
    compare_on_host("MaxUnpool", RANDOM.standard_normal(shape).astype(np.float32), offsets, opset=11, **attrs)


def test_a_larger_output_has_the_values_in_its_corner():
    """As ONNX's own test has it; ONNX Runtime counts the offsets in the larger one."""
    x, offsets = np.float32([[[[5, 6], [7, 8]]]]), np.array([[[[5, 7], [13, 15]]]])
    proto = node("MaxUnpool", "x i s", "y", kernel_shape=[2, 2], strides=[2, 2])
    (y,) = run_node(onnx_node(proto, {"": 11}, "n"), {"": 11}, {"x": x, "i": offsets, "s": np.array([1, 1, 5, 5])})
    wanted = np.zeros((1, 1, 5, 5), np.float32)
    wanted[0, 0, 1::2, 1::2][:2, :2] = [[5, 6], [7, 8]]
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("bins", [(1, 1), (2, 3), (7, 5)])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_maxima_of_regions(bins: tuple[int, int], scale: float) -> None:
    """Regions inside, partly and wholly outside of the image, of a pixel, with corners in the wrong order."""
    x = RANDOM.standard_normal((2, 3, 9, 11)).astype(np.float32)
    rois = np.float32([[0, 1, 2, 8, 7], [1, -5, -4, 3, 30], [1, 40, 40, 44, 47], [0, 3, 3, 3, 3], [0, 6, 6, 2, 1]])
    compare_on_host("MaxRoiPool", x, rois, pooled_shape=[*bins], spatial_scale=scale)
    compare_on_host("MaxRoiPool", x, np.zeros((0, 5), np.float32), pooled_shape=[*bins])
