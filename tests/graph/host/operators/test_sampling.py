"""Images read between their pixels on the host, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from brickrt.graph.host.operators import sampled_points
from brickrt.graph.host.run_host_node import run_node
from brickrt.graph.onnx_import.protobuf import onnx_node
from tests.support.graphs.builders_harness import one_node
from tests.support.graphs.onnx_models import by_onnxruntime

RANDOM = np.random.default_rng(6)


def data(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def compare(op_type: str, *inputs: np.ndarray | None, opset: int, oracle: str = "onnxruntime", **attrs: object) -> None:
    model, feeds = one_node(op_type, opset, list(inputs), 1, **attrs)
    opsets = {"": opset}
    (actual,) = run_node(onnx_node(model.graph.node[0], opsets, "n"), opsets, feeds)
    if oracle == "onnxruntime":
        (expected,) = by_onnxruntime(model, feeds).values()
    else:
        (expected,) = ReferenceEvaluator(model).run(None, feeds)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(actual, expected, 1e-4, 2e-5)


@pytest.mark.parametrize("few", [-1, sampled_points.UNCOMPILED_ELEMENTS])
@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("opset", "mode"), [(16, "bilinear"), (16, "bicubic"), (20, "linear"), (20, "nearest")])
def test_images_at_points(opset, mode, padding_mode, align_corners, few, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled_points, "UNCOMPILED_ELEMENTS", few)
    settings = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    compare("GridSample", data(2, 3, 5, 7), data(2, 4, 6, 2) * 1.5, opset=opset, **settings)
    compare("GridSample", data(1, 2, 1, 1), data(1, 3, 3, 2), opset=opset, **settings)
    if mode in ("linear", "nearest"):
        compare("GridSample", data(2, 3, 3, 5, 4), data(2, 2, 4, 3, 3), opset=opset, **settings)


def test_points_far_away() -> None:
    grid = np.array([1e6, -1e6, 50, -50, 0.3, 1], np.float32).reshape(1, 1, 3, 2)
    for padding_mode in ("zeros", "border"):
        compare("GridSample", data(1, 2, 4, 6), grid, opset=16, padding_mode=padding_mode)
