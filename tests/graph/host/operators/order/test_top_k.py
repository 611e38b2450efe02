"""TopK of many elements on the host, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.errors import BrickError
from brickrt.graph.host import quick
from brickrt.graph.host.operators.order import greatest_elements
from brickrt.graph.host.run_host_node import run_node
from brickrt.graph.onnx_import.protobuf import onnx_node
from tests.support.graphs.builders_harness import one_node
from tests.support.graphs.onnx_models import by_onnxruntime, node

RANDOM = np.random.default_rng(4)


@pytest.fixture(autouse=True)
def all_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes are not quick, and rows are looked at in several blocks."""
    monkeypatch.setattr(quick, "QUICK_COMPILED_ELEMENTS", 0)
    monkeypatch.setattr(greatest_elements, "AT_ONCE", 100)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("count", [0, 1, 3, 29])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_as_onnxruntime(dtype: type, axis: int, count: int, largest: int) -> None:
    """Many are equal; the first of them comes first."""
    x = RANDOM.integers(0, 40, (30, 31, 29)).astype(dtype)
    model, feeds = one_node("TopK", 11, [x, np.array([count])], 2, axis=axis, largest=largest)
    actual = run_node(onnx_node(model.graph.node[0], {"": 11}, "n"), {"": 11}, feeds)
    for found, wanted in zip(actual, by_onnxruntime(model, feeds).values(), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def test_some_rows_with_what_is_no_number():
    x = RANDOM.standard_normal((7, 50)).astype(np.float32)
    x[3, 17] = np.nan
    proto = onnx_node(node("TopK", "x k", "y i"), {"": 11}, "n")
    values, places = run_node(proto, {"": 11}, {"x": x, "k": np.array([2])})
    others = np.delete(np.arange(7), 3)
    np.testing.assert_array_equal(places[others], np.argsort(-x[others], -1)[:, :2])
    assert places[3].tolist() == [17, np.nanargmax(x[3])] and np.isnan(values[3, 0])


def test_a_number_as_an_attribute():
    proto = onnx_node(node("TopK", "x", "y i", k=2, axis=0), {"": 1}, "n")
    values, places = run_node(proto, {"": 1}, {"x": np.float32([3, 5, 4])})
    assert values.tolist() == [5, 4] and places.tolist() == [1, 2]


def test_more_than_there_are_along_the_axis():
    proto = onnx_node(node("TopK", "x k", "y i", axis=0), {"": 11}, "n")
    with pytest.raises(BrickError, match="5 of 4 elements are asked for along axis 0"):
        run_node(proto, {"": 11}, {"x": np.ones((4, 3), np.float32), "k": np.array([5])})
