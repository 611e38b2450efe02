"""Gathers, scatters, one-hot and box suppression on the host, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.host.run_host_node import run_node
from brickrt.graph.onnx_import.protobuf import onnx_node
from tests.support.graphs.builders_harness import one_node
from tests.support.graphs.onnx_models import by_onnxruntime

RANDOM = np.random.default_rng(2)
X = RANDOM.standard_normal((3, 4, 5)).astype(np.float32)


def compare(op_type: str, *inputs: np.ndarray | None, opset: int = 18, **attrs: object) -> np.ndarray:
    model, feeds = one_node(op_type, opset, list(inputs), 1, **attrs)
    opsets = {"": opset}
    (actual,) = run_node(onnx_node(model.graph.node[0], opsets, "n"), opsets, feeds)
    (expected,) = by_onnxruntime(model, feeds).values()
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(actual, expected, 1e-6, 1e-6)
    return actual


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_along_an_axis_of_fewer_others(axis):
    indices = RANDOM.integers(-3, 3, (2, 3, 2))
    compare("GatherElements", X, indices, axis=axis)
    unique = np.broadcast_to(np.arange(2).reshape([2 if k == axis % 3 else 1 for k in range(3)]), (2, 2, 2))
    compare(
        "ScatterElements",
        X,
        np.ascontiguousarray(unique),
        RANDOM.standard_normal((2, 2, 2)).astype(np.float32),
        axis=axis,
    )


def test_more_elements_than_numpy_chooses_from():
    x = RANDOM.standard_normal((1, 300)).astype(np.float32)
    compare("GatherElements", x, RANDOM.integers(0, 300, (1, 200)), axis=1)


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_repeated_positions_combine(reduction):
    updates = RANDOM.standard_normal((2, 4, 5)).astype(np.float32)
    compare("ScatterElements", X, np.ones((2, 4, 5), np.int64), updates, axis=0, reduction=reduction)
    compare("ScatterND", X, np.ones((2, 1), np.int64), updates, reduction=reduction)


@pytest.mark.parametrize(("batch_dims", "shape"), [(0, (2, 2)), (0, (2, 3, 1)), (1, (3, 2, 1)), (2, (3, 4, 1))])
def test_slices_at_tuples(batch_dims, shape):
    compare("GatherND", X, RANDOM.integers(-3, 3, shape), batch_dims=batch_dims)


def test_depth_as_a_vector():
    compare("OneHot", np.array([1, -1, 7]), np.array([4]), np.array([0.5, 2], np.float32), axis=0)


@pytest.mark.parametrize("center_point_box", [0, 1])
def test_overlapping_boxes(center_point_box):
    boxes, scores = RANDOM.random((2, 60, 4), np.float32), RANDOM.random((2, 3, 60), np.float32)
    thresholds = [np.array([v], np.float32) for v in (0.4, 0.3)]
    kept = compare("NonMaxSuppression", boxes, scores, np.array([40]), *thresholds, center_point_box=center_point_box)
    assert 0 < len(kept) < 240


def test_boxes_without_limits():
    boxes, scores = RANDOM.random((1, 10, 4), np.float32), RANDOM.random((1, 1, 10), np.float32)
    assert len(compare("NonMaxSuppression", boxes, scores)) == 0
