"""Sums so far along an axis, and the greatest elements, of tensors as large as images; smaller ones run on the host."""

from __future__ import annotations

import math

import numpy as np
import pytest

from brickrt.graph.errors import Unsupported
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.operators.reduce import RunningSum
from brickrt.ops.types import TensorType
from tests.support.graphs.builders_harness import check, one_node, run_model
from tests.support.graphs.by_definition import interpret

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("axis", [1, 3, -2])
@pytest.mark.parametrize("way", [{}, {"reverse": 1}, {"exclusive": 1}, {"reverse": 1, "exclusive": 1}])
def test_sums_so_far(dtype: type, axis: int, way: dict[str, int]) -> None:
    """Few positions (channels), and many: 33 and 101. Eighths are added without rounding, in any order."""
    x = (RNG.integers(-99, 99, (1, 5, 33, 101)) / 8).astype(dtype)
    check("CumSum", 14, [x, np.array(axis)], tolerance=0, **way)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("shape", [(40, 33, 20), (40, 33, 4, 5), (400, 60, 2)])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_devices_with_kernels_for_sums_and_without(shape, axis, dtype):
    """One operator where vectors lie side by side; the same sums in operators that all devices have."""
    x = (RNG.integers(-99, 99, shape) / 8).astype(dtype)
    model, values = one_node("CumSum", 14, [x, np.array(axis)])
    source = load(model)
    wide = axis != -1 and math.prod(shape[axis + 1 :]) >= 16 and shape[axis] > 32
    for kernels in (False, True):
        types = {name: TensorType(array.shape, array.dtype) for name, array in values.items()}
        part = specialize(first_stage(source), types, {"in1": values["in1"]}, cpu_operators=kernels)
        assert not part.host_nodes
        assert any(isinstance(node.op, RunningSum) for node in part.graph.nodes) == (kernels and wide)
        (found,) = interpret(part.graph, {name: values[name] for name in part.graph.inputs}).values()
        np.testing.assert_array_equal(found, np.cumsum(x, axis))


def test_sums_of_half_precision_are_rounded_once() -> None:
    x = np.full((1, 1, 2, 2**13), 0.001, np.float16)
    model, feeds = one_node("CumSum", 14, [x, np.array(3)])
    (found,) = run_model(model, feeds)
    np.testing.assert_allclose(found, np.cumsum(x, axis=3, dtype=np.float64), rtol=2**-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize(("k", "largest", "axis"), [(1, 1, 1), (3, 1, 1), (6, 1, -3), (2, 0, 1), (16, 0, 3)])
def test_greatest_elements(dtype: type, k: int, largest: int, axis: int) -> None:
    """Many are equal, so that the first of them come first."""
    x = RNG.integers(-3, 4, (1, 6, 41, 67)).astype(dtype)
    check("TopK", 11, [x, np.array([k])], outputs=2, axis=axis, largest=largest)


@pytest.mark.parametrize("largest", [0, 1])
def test_infinities_and_nan(largest: int) -> None:
    """NaN comes first; what is least of all is found where nothing else is left."""
    worst = -np.inf if largest else np.inf
    x = np.full((1, 5, 64, 64), worst, np.float32)
    x[:, 2], x[:, 4, ::2], x[:, 3, :, ::3] = 1, np.nan, -worst
    model, feeds = one_node("TopK", 11, [x, np.array([5])], 2, axis=1, largest=largest)
    values, places = run_model(model, feeds, ["k"] if "k" in feeds else list(feeds)[1:])
    key = np.where(np.isnan(x), -np.inf, -x if largest else x)
    nan = np.isnan(x)
    order = np.lexsort((np.broadcast_to(np.arange(5)[:, None, None], x.shape), key, ~nan), axis=1)
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


@pytest.mark.parametrize(
    ("op_type", "x", "operand", "said"),
    [
        ("CumSum", np.ones((4, 5), np.float32), np.array(1), "20 elements are few"),
        ("CumSum", np.ones((1, 2**14 + 1), np.float32), np.array(1), "sums of 16385 elements"),
        ("TopK", np.ones((4, 5), np.float32), np.array([1]), "20 elements are few"),
        ("TopK", np.ones((64, 512), np.float32), np.array([17]), "17 of 512 elements"),
    ],
)
def test_what_numpy_does(op_type: str, x: np.ndarray, operand: np.ndarray, said: str) -> None:
    model, feeds = one_node(op_type, 11, [x, operand], 1 + (op_type == "TopK"))
    with pytest.raises(Unsupported, match=said):
        run_model(model, feeds, list(feeds)[1:])
