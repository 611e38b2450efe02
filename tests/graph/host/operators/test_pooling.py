"""Where the maxima of windows are, on the host, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.host.run_host_node import run_node
from brickrt.graph.onnx_import.protobuf import onnx_node
from tests.support.graphs.builders_harness import one_node
from tests.support.graphs.onnx_models import by_onnxruntime

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
