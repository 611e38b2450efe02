"""Constants that a model makes again and again are made once."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import Specialized, first_stage
from brickrt.ops.types import TensorType
from tests.support.graphs.by_definition import run_model
from tests.support.graphs.onnx_models import by_onnxruntime, model, node, tensor

ROWS = np.arange(1 << 10, dtype=np.float32)
"""As a column less itself, more elements than a quick node gives."""
X = np.random.default_rng(0).standard_normal((1, 1 << 10)).astype(np.float32)


def first(proto: onnx.ModelProto) -> Specialized:
    return specialize(first_stage(load(proto)), {"x": TensorType(X.shape, X.dtype)}, {})


def masks(first_axis: int = 1, second_axis: int = 1, second: np.ndarray = ROWS, other: str = "Sub") -> onnx.ModelProto:
    """Adds two masks, each of its own rows, to the input."""
    nodes = [
        *(node("Unsqueeze", f"rows{k} axis{k}", f"column{k}") for k in range(2)),
        node("Sub", "column0 rows0", "mask0"),
        node(other, "column1 rows1", "mask1"),
        node("Mul", "x mask0", "a"),
        node("Sub", "a mask1", "y"),
    ]
    axes = {f"axis{k}": np.array([axis]) for k, axis in enumerate((first_axis, second_axis))}
    return model(nodes, [tensor("x", list(X.shape))], rows0=ROWS, rows1=second.copy(), **axes)


def test_equal_masks_are_one_constant():
    part = first(masks())
    assert [array.nbytes for array in part.graph.constants.values()] == [4 * ROWS.size**2]


@pytest.mark.parametrize(
    "changes",
    [
        {"second_axis": 0},
        {"second": ROWS[::-1]},
        {"second": ROWS * np.float32(-0.0)},
        {"other": "Add"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_differs_stays_apart(changes):
    proto = masks(**changes)
    np.testing.assert_allclose(run_model(load(proto), {"x": X})["y"], by_onnxruntime(proto, {"x": X})["y"], 0, 1e-3)


@pytest.mark.parametrize("second", [0.0, 1.0])
def test_attributes_tell_nodes_apart(second):
    """quick nodes take no part: these are large and have an attribute each"""
    nodes = [
        node("LeakyRelu", "table", "first", alpha=0.0),
        node("LeakyRelu", "table", "second", alpha=second),
        node("Add", "x first", "a"),
        node("Add", "a second", "y"),
    ]
    table = np.linspace(-1, 1, 1 << 20, dtype=np.float32).reshape(1 << 10, 1 << 10)
    proto = model(nodes, [tensor("x", list(X.shape))], table=table)
    assert len(first(proto).graph.constants) == (1 if second == 0.0 else 2)
    expected = X + np.maximum(table, 0) + np.where(table < 0, np.float32(second) * table, table)
    np.testing.assert_allclose(run_model(load(proto), {"x": X})["y"], expected, 1e-6, 1e-6)


def test_random_numbers_are_drawn_for_each_node():
    nodes = [
        *(node("RandomUniformLike", "table", name) for name in ("first", "second")),
        node("Sub", "first second", "difference"),
        node("Add", "x difference", "y"),
    ]
    proto = model(nodes, [tensor("x", list(X.shape))], table=np.zeros((8, 1 << 10), np.float32))
    assert run_model(load(proto), {"x": np.zeros_like(X)})["y"].any()


def test_outputs_of_the_model_that_are_equal():
    nodes = [node("Sub", "rows0 column", "y"), node("Sub", "rows1 column", "z"), node("Add", "x z", "w")]
    given = {"rows0": ROWS, "rows1": ROWS.copy(), "column": ROWS[:, None].copy()}
    found = run_model(load(model(nodes, [tensor("x", list(X.shape))], "y z w", **given)), {"x": X})
    for name, expected in (("y", 0), ("z", 0), ("w", X)):
        np.testing.assert_array_equal(found[name], ROWS - ROWS[:, None] + np.float32(expected))
