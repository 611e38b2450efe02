"""Norms of groups of channels that are written as norms of Views."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.graph.builder import Builder
from brickrt.graph.ir import Graph
from brickrt.graph.passes.algebra.group_norms import unview_norms
from brickrt.ops.expr import apply
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import View
from brickrt.ops.operators.reduce import Reduce
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.small_graphs import ADD, MUL, RELU, X, Y, array, make, number, ops, same_results

DIFFERENCE = apply("sub", X, Y)
SQUARE = apply("mul", DIFFERENCE, DIFFERENCE)
SPREAD = apply("sqrt", apply("add", X, number(1e-3)))


def norm(b: Builder, x: str, affine: str = "none") -> str:
    """Over the last axis: difference from the sum, times the deviation, with constants as InstanceNormalization has."""
    mean = b.emit(Reduce("sum", (2,), True), x)
    spread = b.emit(Reduce("sum", (2,), True, SQUARE, SPREAD), x, mean)
    y = b.emit(MUL, b.emit(Map(DIFFERENCE), x, mean), spread)
    groups = b.type(x).shape[1]
    if affine == "groups":
        y = b.emit(MUL, y, b.constant(array(1, groups, 1), "scale"))
    if affine == "number":
        y = b.emit(MUL, b.constant(array(1).reshape(()), "scale"), y)
    return y


@st.composite
def group_norms(draw: st.DrawFn) -> Graph:
    """x ─ relu ─ view ─ norm ─ view ─ scale of channels, and perhaps others that read what lies between."""
    groups, each, batch = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    space = tuple(draw(st.integers(1, 4)) for _ in range(draw(st.integers(1, 3))))
    affine, others = draw(st.sampled_from(["none", "groups", "number"])), draw(st.integers(0, 2))
    shape = (batch, groups * each, *space)

    def build(b: Builder) -> tuple[str, ...]:
        x = b.emit(View((batch, groups, int(np.prod(shape)) // batch // groups)), b.emit(RELU, "x"))
        y = norm(b, x, affine)
        image = b.emit(View(shape), y)
        scaled = b.emit(MUL, image, b.constant(array(groups * each, *(1,) * len(space)), "scale"))
        return (scaled, *(b.emit(RELU, name) for name in (x, y)[:others]))

    return make(build, x=shape)


@settings(max_examples=40, deadline=None)
@given(group_norms(), st.sampled_from([1.0, np.inf, -np.inf, np.nan]))
def test_any_group_norm(before, value):
    after = same_results(before, unview_norms(before))
    x = array(*before.types["x"].shape, seed=7)
    x.flat[x.size // 2] = value
    with np.errstate(all="ignore"):
        expected, actual = interpret(before, {"x": x}), interpret(after, {"x": x})
    for name in expected:
        np.testing.assert_allclose(actual[name], expected[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_the_image_keeps_its_shape(groups):
    shape = (2, 4, 3, 5)

    def build(b: Builder) -> str:
        return b.emit(RELU, b.emit(View(shape), norm(b, b.emit(View((2, groups, 60 // groups)), "x"))))

    before = make(build, x=shape)
    after = same_results(before, unview_norms(before))
    for node in after.nodes:
        if isinstance(node.op, View):
            assert before.types["x"].size // 15 >= after.out(node).size
        if isinstance(node.op, Map):
            assert after.out(node).shape == shape


def along_rows(b: Builder) -> str:
    """The last axis of the View holds parts of channels."""
    return b.emit(View((1, 4, 3, 5)), norm(b, b.emit(View((1, 12, 5)), "x")))


def without_reduction(b: Builder) -> str:
    return b.emit(View((1, 4, 3, 5)), b.emit(RELU, b.emit(View((1, 2, 30)), "x")))


def never_an_image(b: Builder) -> str:
    return b.emit(ADD, norm(b, b.emit(View((1, 2, 30)), "x")), "z")


@pytest.mark.parametrize("build", [along_rows, without_reduction, never_an_image])
def test_what_stays(build):
    before = make(build, x=(1, 4, 3, 5), z=(1, 2, 30))
    assert ops(unview_norms(before)) == ops(before)
