"""Elements read from, and put at, constant positions, as slices and relative positions are exported; rows of a table at
computed ones."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import brickrt
from brickrt.graph.errors import Unsupported
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.operators.gather_rows import GatherRows
from brickrt.ops.operators.move import Concat, Take
from brickrt.ops.types import TensorType
from tests.support.cpu.streams import plan_of
from tests.support.graphs.builders_harness import one_node, run_model
from tests.support.graphs.onnx_models import by_onnxruntime, model, node, tensor

RNG = np.random.default_rng(5)


def data(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_gather_elements(drawn: st.DataObject) -> None:
    """Positions that are alike along some axes, or along none."""
    shape = drawn.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    axis = drawn.draw(st.integers(-len(shape), len(shape) - 1))
    wanted = [drawn.draw(st.integers(1, n)) for n in shape]
    wanted[axis] = drawn.draw(st.integers(1, 5))
    spread = [drawn.draw(st.sampled_from([1, n])) for n in wanted]
    some = RNG.integers(-shape[axis], shape[axis], spread)
    x, indices = data(*shape), np.broadcast_to(some, wanted).copy()
    (y,) = run_model(*one_node("GatherElements", 13, [x, indices], axis=axis), constants=["in1"])
    np.testing.assert_array_equal(
        y, np.take_along_axis(x[tuple(slice(n) for n in cut(wanted, shape, axis))], indices, axis)
    )


def cut(wanted: list[int], shape: list[int], axis: int) -> list[int]:
    """How much of x has positions along its other axes."""
    return [shape[k] if k == axis % len(shape) else n for k, n in enumerate(wanted)]


def test_relative_positions_are_one_table_for_all_heads() -> None:
    distances = np.arange(5)[:, None] - np.arange(5) + 4
    x, indices = data(1, 3, 5, 9), np.broadcast_to(distances, (1, 3, 5, 5)).copy()
    ops = planned("GatherElements", x, {"indices": indices}, axis=3)
    table = tuple((distances + 9 * np.arange(5)[:, None]).ravel().tolist())
    assert [op.tables for op in ops if isinstance(op, Take)] == [(None, None, table)]


BOXES = {
    "rows": np.array([[1], [2]]),
    "every other row": np.array([[0], [2], [-1]]),
    "backwards": np.array([[3], [1], [0]]),
    "all": np.array([[0], [1], [2], [3], [4]]),
    "part": np.stack(np.meshgrid([1, 2], [0, 2], indexing="ij"), -1),
    "inner": np.stack(np.meshgrid(range(5), [3], [1, 2, 3], indexing="ij"), -1),
    "no box": np.array([[0, 1], [1, 2], [3, 3]]),
    "twice": np.array([[1], [0], [1]]),
    "columns first": np.stack(np.meshgrid([1, 2], [0, 2], indexing="ij"), -1).swapaxes(0, 1),
}


@pytest.mark.parametrize("name", BOXES)
def test_scatter_nd(name: str) -> None:
    indices = BOXES[name].astype(np.int64)
    x = data(5, 4, 6)
    updates = data(*indices.shape[:-1], *x.shape[indices.shape[-1] :])
    onnx_model, feeds = one_node("ScatterND", 18, [x, indices, updates])
    (y,) = run_model(onnx_model, feeds, constants=["in1"])
    (expected,) = ReferenceEvaluator(onnx_model).run(None, feeds)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("box", [True, False])
def test_scatter_elements(axis: int, box: bool) -> None:
    x = data(4, 5, 6)
    order = np.stack([RNG.permutation(x.shape[axis])[:3] - x.shape[axis] * k for k in range(2)])
    indices = np.moveaxis(np.broadcast_to(order[0] if box else order[[0, 1, 1, 0]][:, None], (4, 4, 3)), -1, axis)
    updates = data(*indices.shape)
    onnx_model, feeds = one_node("ScatterElements", 18, [x, indices.copy(), updates], axis=axis)
    (y,) = run_model(onnx_model, feeds, constants=["in1"])
    expected = x.copy()
    np.put_along_axis(
        expected[tuple(slice(n) for n in cut(list(indices.shape), list(x.shape), axis))], indices, updates, axis
    )
    np.testing.assert_array_equal(y, expected)


def test_an_assignment_to_rows_joins_them_with_what_stays() -> None:
    ops = planned("ScatterND", data(6, 4), {"indices": np.array([[2], [3]])}, data(2, 4))
    assert [type(op) for op in ops if isinstance(op, Concat | Take)] == [Take, Take, Concat]


def planned(op_type: str, x: np.ndarray, constants: dict[str, np.ndarray], *more: np.ndarray, **attrs: int) -> list:
    """The operators that one node between two others becomes."""
    inputs = {f"x{k}": array for k, array in enumerate((x, *more))}
    nodes = [node("Relu", name, f"r{name}") for name in inputs]
    first, *others = (f"r{name}" for name in inputs)
    nodes += [node(op_type, " ".join([first, *constants, *others]), "z", **attrs), node("Neg", "z", "y")]
    told = [tensor(name, array.shape) for name, array in inputs.items()]
    return [n.op for n in plan_of(model(nodes, told, **constants)).graph.nodes]


def test_positions_that_are_not_there_are_refused() -> None:
    for op, inputs in {
        "GatherElements": [data(3, 4), np.array([[4, 0]])],
        "ScatterND": [data(3, 4), np.array([[3]]), data(1, 4)],
        "ScatterElements": [data(3, 4), np.array([[-4, 0]]), data(1, 2)],
    }.items():
        with pytest.raises(ValueError, match="outside"):
            run_model(*one_node(op, 18, inputs, **({"axis": 1} if op[0] == "G" else {})), constants=["in1"])


def test_shapes_that_do_not_suit_are_refused() -> None:
    for op, inputs in {
        "GatherElements": [data(3, 4), np.array([0])],
        "ScatterND": [data(3, 4), np.array([[1]]), data(1, 3)],
        "ScatterElements": [data(3, 4), np.array([[1]]), data(1, 2)],
    }.items():
        with pytest.raises(ValueError, match="do not suit"):
            run_model(*one_node(op, 18, inputs), constants=["in1"])


def test_sums_at_positions_and_unknown_positions_are_for_the_host() -> None:
    with pytest.raises(Unsupported, match="reduction"):
        run_model(
            *one_node("ScatterND", 18, [data(3, 4), np.array([[1]]), data(1, 4)], reduction="add"), constants=["in1"]
        )
    with pytest.raises(Unsupported, match="known only when it runs"):
        run_model(*one_node("ScatterND", 18, [data(3, 4), np.array([[1]]), data(1, 4)]))


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize(
    ("steps", "rows", "inside"),
    [
        ([], 7, True),
        ([node("Cast", "k", "at", to=onnx.TensorProto.INT32)], 9, True),
        ([node("Transpose", "k", "t", perm=[1, 0]), node("Flatten", "t", "at", axis=0)], 7, True),
        ([], 6, False),
        ([node("Add", "k one", "at")], 7, False),
    ],
    ids=["as they are", "cast", "turned", "too few rows", "moved"],
)
def test_rows_of_a_table_at_the_greatest_elements(steps, rows, inside, kernels):
    """A kernel copies rows whose positions are known to be inside, as those of 7 elements are."""
    nodes = [
        node("ArgMax", "x", "k", axis=1, keepdims=0),
        *steps,
        node("Gather", f"table {'at' if steps else 'k'}", "y"),
    ]
    x, table = data(4, 7, 5), data(rows, 3, 2)
    proto = model(nodes, [tensor("x", x.shape)], table=table, one=np.array(1))
    found = specialize(first_stage(load(proto)), {"x": TensorType(x.shape, x.dtype)}, {}, cpu_operators=kernels)
    assert bool(found.host_nodes) != (kernels and inside)
    assert any(isinstance(one.op, GatherRows) for one in found.graph.nodes) == (kernels and inside)
    if kernels and inside:
        runtime = brickrt.Runtime(proto, device="cpu")
        np.testing.assert_array_equal(runtime.execute({"x": x})["y"], by_onnxruntime(proto, {"x": x})["y"])


def test_rows_at_a_single_position():
    nodes = [node("ArgMax", "x", "k", axis=0, keepdims=0), node("Gather", "table k", "y")]
    x, table = data(7), data(7, 3)
    proto = model(nodes, [tensor("x", x.shape)], table=table)
    found = brickrt.Runtime(proto, device="cpu").execute({"x": x})["y"]
    np.testing.assert_array_equal(found, table[x.argmax()])
