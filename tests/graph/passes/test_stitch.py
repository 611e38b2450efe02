"""Reductions and Maps over the same rows become one row-wise operator."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.builder import Builder
from brickrt.graph.builders.arithmetic.softmax import softmax_over
from brickrt.graph.ir import Graph
from brickrt.graph.passes import stitch as stitching
from brickrt.graph.passes.fuse import fuse
from brickrt.graph.passes.stitch import ROW_BYTES, stitch
from brickrt.ops.expr import apply, walk
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise
from tests.support.graphs.small_graphs import ADD, MUL, X, Y, array, make, number, ops, same_results

SUB, DIV, EXP = (Map(apply("sub", X, Y)), Map(apply("div", X, Y)), Map(apply("exp", X)))


def mean(b: Builder, x: str, axes: tuple[int, ...] = (1,)) -> str:
    count = np.prod([b.type(x).shape[axis] for axis in axes])
    return b.emit(Reduce("sum", axes, True, None, apply("div", X, number(count))), x)


def norm(b: Builder, x: str, axes: tuple[int, ...] = (1,)) -> str:
    """In the primitive operators that PyTorch exports."""
    centred = b.emit(SUB, x, mean(b, x, axes))
    variance = mean(b, b.emit(Map(apply("mul", X, X)), centred), axes)
    deviation = b.emit(Map(apply("sqrt", apply("add", X, number(1e-5)))), variance)
    weight = b.constant(array(b.type(x).shape[1], 1, 1))
    return b.emit(MUL, b.emit(DIV, centred, deviation), weight)


def stitched(before: Graph) -> Graph:
    return same_results(before, stitch(fuse(before)))


COLUMNS = [((2,), (2, 5, 4, 4)), ((2,), (2, 5, 4, 3)), ((1,), (2, 5, 4, 4)), ((2, 3), (2, 5, 4, 4))]


def test_norm_is_one_node():
    """
    x ─┬─ mean ─┬────────┐
       ├────────┴ centre ┼─ variance ─┐
       │                 └────────────┴─ scale ─
    """
    after = stitched(make(lambda b: norm(b, "x"), x=(2, 5, 4, 3)))
    assert ops(after) == ["Rowwise"]
    op = after.nodes[0].op
    assert isinstance(op, Rowwise) and op.kept is None
    assert [s.combine for s in op.steps] == ["sum", "sum"]
    # The division by the deviation is a product with its reciprocal.
    assert not any(e.fn == "div" for e in walk(op.expr) if hasattr(e, "fn"))


def test_softmax_keeps_its_powers():
    after = stitched(make(lambda b: softmax_over(b, "x", (2,)), x=(2, 3, 7)))
    (node,) = after.nodes
    assert isinstance(node.op, Rowwise) and node.op.kept is not None and len(node.op.steps) == 2


def test_a_statistic_that_divides_what_is_kept_too():
    """exp(x / m) / sum(exp(x / m)) / m: m is no reciprocal, since the powers are kept before they are summed."""

    def build(b: Builder) -> str:
        m = mean(b, b.emit(MUL, "x", "x"))
        powers = b.emit(EXP, b.emit(DIV, "x", m))
        shares = b.emit(DIV, powers, b.emit(Reduce("sum", (1,), True, None, None), powers))
        return b.emit(DIV, shares, m)

    (node,) = stitched(make(build, x=(2, 5, 4))).nodes
    assert isinstance(node.op, Rowwise) and node.op.kept is not None


@pytest.mark.parametrize("axes", [(0,), (1,), (1, 2), (0, 1, 2, 3)])
def test_any_axes(axes):
    assert ops(stitched(make(lambda b: norm(b, "x", axes), x=(2, 5, 4, 3)))) == ["Rowwise"]


def test_a_statistic_that_others_read_stays_outside():
    """The mean is an output of the graph too: what is left of the chain reads it."""

    def build(b: Builder) -> tuple[str, str]:
        middle = mean(b, "x")
        centred = b.emit(SUB, "x", middle)
        squares = mean(b, b.emit(MUL, centred, centred))
        return b.emit(DIV, centred, squares), middle

    assert ops(stitched(make(build, x=(2, 5, 4)))) == ["Reduce", "Rowwise"]


def test_what_is_costly_is_not_computed_in_every_sweep():
    """x ─ exp ─ norm: three sweeps would compute three powers."""

    def build(b: Builder) -> str:
        return norm(b, b.emit(EXP, "x"))

    assert ops(stitched(make(build, x=(2, 5, 4, 3)))) == ["Map", "Rowwise"]


def test_rows_that_no_cache_holds_stay_apart():
    length = ROW_BYTES // 4 + 1
    after = stitched(make(lambda b: softmax_over(b, "x", (1,)), x=(1, length)))
    assert "Rowwise" not in ops(after)


def test_columns_of_large_images_stay_apart(monkeypatch: pytest.MonkeyPatch):
    """They cross all bands of a run in little memory. Channels do not, and other images are computed whole."""
    monkeypatch.setattr(stitching, "LARGE_IMAGE_BYTES", 2 * 5 * 4 * 3 * 4)
    kinds = [ops(stitched(make(lambda b, a=axes: norm(b, "x", a), x=shape))) for axes, shape in COLUMNS]
    assert ["Rowwise" in kind for kind in kinds] == [False, True, True, True]


def test_reductions_over_other_axes_stay_apart():
    after = stitched(make(lambda b: b.emit(ADD, norm(b, "x"), mean(b, "x", (2,))), x=(2, 5, 4, 3)))
    assert sorted(ops(after)) == ["Reduce", "Rowwise"]


def test_two_norms_in_sequence_are_four_steps():
    (node,) = stitched(make(lambda b: norm(b, norm(b, "x")), x=(2, 5, 4, 3))).nodes
    assert isinstance(node.op, Rowwise) and len(node.op.steps) == 4
