"""Long reductions of few results become two."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.builder import Builder
from brickrt.graph.passes.long_reductions import split_long_reductions
from brickrt.ops.expr import apply, arg, cast, const
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.reduce import Reduce
from tests.support.graphs.small_graphs import X, Y, make, number, same_results


def axes_of(graph) -> list[tuple[int, ...]]:
    return [node.op.axes for node in graph.nodes if isinstance(node.op, Reduce)]


@pytest.mark.parametrize("keepdims, second", [(True, (2,)), (False, (2, 3))])
@pytest.mark.parametrize("combine", ["sum", "max"])
def test_space_in_rows_first(combine, keepdims, second):
    before = make(lambda b: b.emit(Reduce(combine, (2, 3), keepdims), "x"), x=(2, 3, 80, 90))
    after = same_results(before, split_long_reductions(before), 1e-4)
    assert axes_of(after) == [(3,), second]


def test_the_expression_before_is_in_the_first_and_the_one_after_in_the_second():
    def build(b: Builder) -> str:
        pre, post = apply("mul", X, Y), apply("sqrt", apply("abs", apply("div", X, number(60 * 90))))
        return b.emit(Reduce("sum", (1, 2, 3), True, pre, post), "x", "y")

    before = make(build, x=(2, 60, 10, 9), y=(60, 1, 1))
    after = same_results(before, split_long_reductions(before), 1e-4)
    assert axes_of(after) == [(2, 3), (1,)]


@pytest.mark.parametrize(
    "shape, axes", [((1, 4, 20, 20), (2, 3)), ((8, 512, 70, 70), (2, 3)), ((2, 9000), (1,)), ((1, 3, 1, 9000), (2, 3))]
)
def test_short_many_or_of_one_axis_are_left(shape, axes):
    before = make(lambda b: b.emit(Reduce("sum", axes, True), "x"), x=shape)
    assert split_long_reductions(before).nodes == before.nodes


@pytest.mark.parametrize("post", [None, apply("mul", arg(0, np.float16), const(0.5, np.float16))])
def test_sums_of_halves_are_rounded_once(post):
    """What is between the steps is float32."""

    def build(b: Builder) -> str:
        half = b.emit(Map(cast(arg(0, np.float32), np.float16)), "x")
        return b.emit(Reduce("sum", (2, 3), True, None, post), half)

    before = make(build, x=(1, 2, 80, 90))
    after = same_results(before, split_long_reductions(before), 1e-3)
    assert axes_of(after) == [(3,), (2,)]
    between, last = (after.out(node).dtype for node in after.nodes if isinstance(node.op, Reduce))
    assert (between, last) == (np.float32, np.float16)
