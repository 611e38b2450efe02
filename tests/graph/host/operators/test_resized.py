"""Resize on the host, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.host.run_host_node import run_node
from brickrt.graph.onnx_import.protobuf import onnx_node
from tests.support.graphs.builders_harness import one_node
from tests.support.graphs.onnx_models import by_onnxruntime

RANDOM = np.random.default_rng(3)
LINEAR = {"mode": "linear"}

CASES = {
    "positions just below an element": ([1, 1, 28, 3], [1, 1, 68, 9], LINEAR),
    "the same, three times": ([1, 2, 28, 28], [1, 2, 164, 244], LINEAR),
    "smaller": ([2, 1, 9, 7], [2, 1, 4, 3], LINEAR),
    "aligned corners": ([1, 1, 5, 4], [1, 1, 9, 2], LINEAR | {"coordinate_transformation_mode": "align_corners"}),
    "to one": ([1, 1, 5, 4], [1, 1, 1, 1], LINEAR | {"coordinate_transformation_mode": "pytorch_half_pixel"}),
    "nearest": ([1, 3, 28, 5], [1, 3, 68, 3], {"mode": "nearest"}),
    "nearest, by floor": (
        [1, 1, 6, 5],
        [1, 1, 8, 11],
        {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
    ),
    "cubic": ([1, 1, 28, 6], [1, 1, 68, 5], {"mode": "cubic"}),
    "cubic, outside left out": ([1, 1, 7, 6], [1, 1, 12, 8], {"mode": "cubic", "exclude_outside": 1}),
    "kept": ([1, 2, 4, 4], [1, 2, 4, 4], LINEAR),
}


def host(inputs: list[np.ndarray | None], attrs: dict) -> tuple[np.ndarray, np.ndarray]:
    """As the host computes it, and ONNX Runtime."""
    model, feeds = one_node("Resize", 13, inputs, 1, **attrs)
    (found,) = run_node(onnx_node(model.graph.node[0], {"": 13}, "n"), {"": 13}, feeds)
    (wanted,) = by_onnxruntime(model, feeds).values()
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    return found, wanted


@pytest.mark.parametrize("name", CASES)
def test_sizes(name: str) -> None:
    shape, sizes, attrs = CASES[name]
    x = RANDOM.standard_normal(shape).astype(np.float32)
    found, wanted = host([x, None, None, np.array(sizes)], attrs)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_scales_of_part_of_an_image(mode: str) -> None:
    x, roi = RANDOM.standard_normal((1, 1, 6, 8)).astype(np.float32), np.float32([0, 0, 0.2, -0.3, 1, 1, 0.9, 1.4])
    attrs = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
    found, wanted = host([x, roi, np.float32([1, 1, 1.5, 2])], attrs)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_all_sizes_of_a_mask() -> None:
    x = RANDOM.standard_normal((1, 1, 28, 1)).astype(np.float32)
    for size in (1, 34, 68, 77, 91, 164, 244, 299):
        found, wanted = host([x, None, None, np.array([1, 1, size, 1])], LINEAR)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_nothing_is_left_where_scales_are_too_small() -> None:
    x = RANDOM.standard_normal((1, 2, 7, 6)).astype(np.float32)
    found, _ = host([x, None, np.float32([1, 1, 0.01, 1.5])], LINEAR)
    assert found.shape == (1, 2, 0, 9)
