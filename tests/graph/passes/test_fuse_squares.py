"""Sums of squared differences compute these themselves."""

from __future__ import annotations

import pytest

from brickrt.graph.builder import Builder
from brickrt.graph.ir import Graph
from brickrt.graph.passes.fuse import fuse
from brickrt.ops.expr import apply
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.reduce import Reduce
from tests.support.graphs.small_graphs import MUL, X, Y, make, number, ops, same_results

SUB, SQUARE, SCALE = Map(apply("sub", X, Y)), Map(apply("mul", X, X)), Map(apply("mul", X, number(0.25)))
SQUARES = apply("mul", apply("sub", X, Y), apply("sub", X, Y))


def norm(b: Builder, square: Map = SQUARE, axes: tuple[int, ...] = (2, 3)) -> str:
    """
    x ─┬─ mean ─┐
       └─────── sub ─┬─ square ─ sum ─┐
                     └────────────── mul ─
    """
    centred = b.emit(SUB, "x", b.emit(SCALE, b.emit(Reduce("sum", axes, True), "x")))
    return b.emit(MUL, centred, b.emit(Reduce("sum", axes, True), b.emit(square, centred)))


def fused(before: Graph) -> Graph:
    return same_results(before, fuse(before))


def sums(graph: Graph) -> list[Reduce]:
    return [n.op for n in graph.nodes if isinstance(n.op, Reduce)]


def test_differences_are_not_stored():
    after = fused(make(norm, x=(2, 3, 4, 5)))
    assert ops(after) == ["Reduce", "Reduce", "Map"]
    assert [op.pre for op in sums(after)] == [None, SQUARES] and all("x" in node.inputs for node in after.nodes)


def test_differences_that_are_an_output_are_still_written():
    def build(b: Builder) -> tuple[str, str]:
        centred = b.emit(SUB, "x", b.emit(Reduce("sum", (1,), True), "x"))
        return centred, b.emit(Reduce("sum", (1,), True), b.emit(SQUARE, centred))

    after = fused(make(build, x=(3, 7)))
    assert sorted(ops(after)) == ["Map", "Reduce", "Reduce"] and sums(after)[-1].pre == SQUARES


@pytest.mark.parametrize("other", [(2, 3, 4, 5), (1, 3, 4, 1)])
def test_differences_of_what_changes_along_the_axes_are_left(other):
    def build(b: Builder) -> str:
        difference = b.emit(SUB, "x", "z")
        return b.emit(MUL, difference, b.emit(Reduce("sum", (2, 3), True), b.emit(SQUARE, difference)))

    after = fused(make(build, x=(2, 3, 4, 5), z=other))
    assert [op.pre for op in sums(after)] != [SQUARES]


def test_other_powers_are_left():
    cube = Map(apply("mul", apply("mul", X, X), X))
    after = fused(make(lambda b: norm(b, cube), x=(2, 3, 4, 5)))
    assert len(sums(after)) == 2 and all(op.pre != SQUARES for op in sums(after))
