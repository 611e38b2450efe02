"""Products of few rows each become products of many, and what stands around them follows."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import brickrt
from brickrt.graph.builder import Builder
from brickrt.graph.passes.fold import fold
from brickrt.graph.passes.normal_form.fold_rows import FEW_ROWS, fold_rows
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Concat, Take, Transpose, View
from brickrt.ops.operators.reduce import Reduce
from tests.support.graphs.small_graphs import ADD, MUL, RELU, array, make, ops, same_results

CENTRE = Reduce("sum", (2,), True)


def product(b: Builder, x: str, columns: int, *batch: int, bias: bool = False) -> str:
    weights = b.constant(array(*batch, b.type(x).shape[-1], columns), "w")
    return b.emit(MatMul(bias=bias), x, weights, *([b.constant(array(columns), "b")] if bias else []))


def test_rows_of_batches_become_rows_of_one_matrix():
    """x [9, 1, 4] ─ product ─  →  x ─ view [1, 9, 4] ─ product ─ view"""
    before = make(lambda b: product(b, "x", 5, bias=True), x=(9, 1, 4))
    after = same_results(before, fold_rows(before))
    assert ops(after) == ["View", "MatMul", "View"]
    assert after.out(after.nodes[1]).shape == (1, 9, 5)


def test_steps_between_products_follow():
    """A norm, two products and a residual sum, sequence first: Views stand at the ends alone."""

    def build(b: Builder) -> str:
        centred = b.emit(ADD, "x", b.emit(CENTRE, "x"))
        y = b.emit(RELU, product(b, centred, 12, bias=True))
        return b.emit(ADD, "x", product(b, y, 4, 1))

    before = make(build, x=(9, 1, 4))
    after = same_results(before, fold_rows(before))
    assert ops(after) == ["View", "Reduce", "Map", "MatMul", "Map", "MatMul", "Map", "View"]


def test_rows_meet_the_transpose_that_swapped_them():
    """x [1, 9, 4] ─ transpose ─ product ─ transpose  →  x ─ product"""

    def build(b: Builder) -> str:
        y = product(b, b.emit(Transpose((1, 0, 2)), "x"), 5)
        return b.emit(Transpose((1, 0, 2)), b.emit(ADD, y, y))

    before = make(build, x=(1, 9, 4))
    assert ops(same_results(before, fold_rows(fold(before)))) == ["MatMul", "Map"]


def test_what_is_added_behind_a_view_is_added_to_the_product():
    """x [9, 4] ─ product ─ norm ─ view [1, 9, 5] ─ add  →  x ─ view ─ product ─ norm ─ add"""

    def build(b: Builder) -> str:
        y = product(b, b.emit(View((9, 4)), b.emit(Transpose((1, 2, 0)), "x")), 5)
        y = b.emit(ADD, y, b.emit(Reduce("max", (1,), True), y))
        return b.emit(ADD, "z", b.emit(View((1, 9, 7)), product(b, y, 7)))

    before = make(build, x=(4, 1, 9), z=(1, 9, 7))
    after = same_results(before, fold_rows(before))
    assert ops(after) == ["Transpose", "MatMul", "Reduce", "Map", "MatMul", "Map"]


@pytest.mark.parametrize("view", [(3, 3, 5), (9, 1, 5), (1, 45)])
def test_views_that_take_rows_apart_stay_behind_products(view):
    before = make(lambda b: b.emit(RELU, b.emit(View(view), product(b, "x", 5))), x=(9, 4))
    assert fold_rows(before) is before


def test_what_differs_between_batches_is_left():
    """A table of positions, the same for all batches, is added after the rows are apart again."""

    def build(b: Builder) -> str:
        return b.emit(ADD, product(b, "x", 5), b.constant(array(2, 5), "positions"))

    before = make(build, x=(3, 2, 4))
    assert ops(same_results(before, fold_rows(before))) == ["View", "MatMul", "View", "Map"]


def test_a_table_of_all_rows_is_folded_too():
    before = make(lambda b: b.emit(ADD, product(b, "x", 5), b.constant(array(3, 2, 5), "c")), x=(3, 2, 4))
    assert ops(same_results(before, fold_rows(before))) == ["View", "MatMul", "Map", "View"]


def test_batches_with_matrices_of_their_own_are_left():
    """[2, 3, 1, 4] × [2, 1, 4, 5]: three rows each, for two matrices."""
    before = make(lambda b: product(b, "x", 5, 2, 1), x=(2, 3, 1, 4))
    after = same_results(before, fold_rows(before))
    assert [after.out(n).shape for n in after.nodes if isinstance(n.op, MatMul)] == [(2, 1, 3, 5)]
    before = make(lambda b: product(b, "x", 5, 2), x=(2, 1, 4))
    assert fold_rows(before) is before


@pytest.mark.parametrize("shape", [(FEW_ROWS, 4), (1, 3, 4), (1, 1, 1, 4), (3, FEW_ROWS, 4), (2, 0, 4), (0, 1, 4)])
def test_products_that_have_all_rows_they_can_have_are_left(shape):
    before = make(lambda b: product(b, "x", 5), x=shape)
    assert fold_rows(before) is before


@st.composite
def draw_layers(draw: st.DrawFn):
    """Shapes of an input and of operands, and steps that may or may not keep rows apart."""
    lead = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    steps = draw(st.lists(st.sampled_from("product own norm sum table slice join mix rank".split()), max_size=6))
    masks = [draw(st.lists(st.booleans(), min_size=5, max_size=5)) for _ in steps]
    return (*lead, 4), steps, masks


def _step(b: Builder, x: str, step: str, mask: list[bool]) -> str:
    """One layer after `x`, with operands that broadcast along the axes of `mask`."""
    shape = b.type(x).shape
    cut = tuple(1 if broad else e for e, broad in zip(shape, mask))
    rank = len(shape)
    match step:
        case "product":
            return product(b, x, 4, *(1,) * (mask[0] * (rank - 2)), bias=mask[1])
        case "own" if rank > 2:
            return product(b, x, 4, *cut[:-2])
        case "norm":
            return b.emit(ADD, x, b.emit(Reduce("max", (rank - 1,), True), x))
        case "rank" if rank < 5 or shape[0] == 1:
            return b.emit(View((1, *shape) if rank < 5 else shape[1:]), x)
        case "sum":
            return b.emit(Map(ADD.expr), x, x)
        case "table":
            return b.emit(MUL, x, b.constant(array(*cut), "c"))
        case "slice":
            return b.emit(Take((*(None,) * (rank - 1), (1, 0, 3, 3))), x)
        case "join":
            return b.emit(Take((*(None,) * (rank - 1), (0, 2, 4, 7))), b.emit(Concat(rank - 1), x, x))
        case "mix":
            y = b.emit(View((math.prod(shape[:-1]), 1, shape[-1])), x)
            return b.emit(View(shape), b.emit(ADD, y, product(b, y, 4)))
    return x


@settings(max_examples=60, deadline=None)
@given(draw_layers())
def test_any_layers_compute_the_same(drawn):
    shape, steps, masks = drawn

    def build(b: Builder) -> str:
        x = "x"
        for step, mask in zip(steps, masks, strict=True):
            x = _step(b, x, step, mask)
        return b.emit(ADD, x, x)

    before = make(build, x=shape)
    after = same_results(before, fold_rows(before), 1e-4)
    for node in after.nodes:
        if isinstance(node.op, MatMul):
            a, w = after.ins(node)[:2]
            one = all(e == 1 for e in w.shape[:-2])
            assert not one or a.shape[-2] in (math.prod(a.shape[:-1]), FEW_ROWS)


@pytest.mark.parametrize(
    ("left", "right", "dtype"),
    [
        ((7, 1, 5), (5, 19), np.float32),
        ((3, 5, 2, 9), (1, 1, 9, 3), np.float64),
        ((2, 3, 1, 1, 6), (2, 1, 1, 6, 17), np.float32),
        ((11, 2, 33), (33, 8), np.float16),
        ((5, 7), (3, 7, 2), np.float32),
    ],
)
def test_models_compute_what_numpy_does(left, right, dtype):
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x, w = array(*left).astype(dtype), array(*right).astype(dtype)
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["p"]), onnx.helper.make_node("Relu", ["p"], ["y"])],
        "product", [info("x", kind, left)], [info("y", kind, None)], [onnx.numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    y = brickrt.Runtime(model, device="cpu").execute({"x": x})["y"]
    expected = np.maximum(np.matmul(x.astype(np.float64), w.astype(np.float64)), 0)
    np.testing.assert_allclose(y, expected, rtol=2e-3 if dtype == np.float16 else 1e-5, atol=1e-5)
