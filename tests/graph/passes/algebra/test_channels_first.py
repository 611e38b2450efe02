"""Norms and products over the last axis between transposes become norms and convolutions over channels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.graph.builder import Builder
from brickrt.graph.ir import Graph
from brickrt.graph.passes.algebra.channel_regions import first_axes, last_axes
from brickrt.graph.passes.algebra.channels_first import channels_first
from brickrt.ops.expr import apply
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Transpose, View
from brickrt.ops.operators.reduce import Reduce
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.small_graphs import ADD, MUL, RELU, X, Y, array, make, ops, same_results

SUB = Map(apply("sub", X, Y))


def last(b: Builder, x: str) -> str:
    return b.emit(Transpose(last_axes(b.type(x).rank)), x)


def first(b: Builder, x: str) -> str:
    return b.emit(Transpose(first_axes(b.type(x).rank)), x)


def linear(b: Builder, x: str, outputs: int, bias: bool = True) -> str:
    weights = b.constant(array(b.type(x).shape[-1], outputs), "w")
    extra = [b.constant(array(outputs, seed=2), "b")] if bias else []
    return b.emit(MatMul(bias=bias), x, weights, *extra)


def norm(b: Builder, x: str) -> str:
    """What a mean is subtracted from, scaled and shifted."""
    axis, channels = b.type(x).rank - 1, b.type(x).shape[-1]
    centred = b.emit(SUB, x, b.emit(Reduce("sum", (axis,), True), x))
    scaled = b.emit(MUL, centred, b.constant(array(channels, seed=3), "scale"))
    return b.emit(ADD, scaled, b.constant(array(*(1,) * axis, channels, seed=4), "shift"))


def step(b: Builder, x: str, kind: str) -> str:
    """One operator on [N, …, C], chosen by name."""
    shape = b.type(x).shape
    match kind:
        case "norm":
            return norm(b, x)
        case "linear" | "product":
            return linear(b, x, 3 if shape[-1] != 3 else 5, kind == "linear")
        case "relu":
            return b.emit(RELU, x)
        case "positions":
            return b.emit(ADD, x, b.constant(array(*shape[1:], seed=5), "p"))
        case "pixels":
            return b.emit(MUL, x, b.constant(array(1, *shape[1:-1], 1, seed=6), "p"))
        case "number":
            return b.emit(MUL, b.constant(array(1), "n"), x)
        case "pool":
            return b.emit(ADD, x, b.emit(Reduce("max", tuple(range(1, len(shape) - 1)), True), x))
        case "tokens":
            return b.emit(View((shape[0], int(np.prod(shape[1:-1])), shape[-1])), x)
        case "turn":  # of rank 3: out of one region and into another
            return linear(b, last(b, x), shape[1]) if len(shape) == 3 else x
    raise AssertionError(kind)


STEPS = ["norm", "linear", "product", "relu", "positions", "pixels", "number", "pool", "tokens", "turn"]


@st.composite
def sandwiches(draw: st.DrawFn) -> Graph:
    """x [N, C, …] ─ transpose ─ steps ─ transpose, with a residual connection around, and perhaps another reader."""
    shape = tuple(draw(st.integers(1, 4)) for _ in range(draw(st.integers(3, 5))))
    kinds = draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=5))
    end, twice = draw(st.sampled_from(["first", "last", "view"])), draw(st.booleans())

    def build(b: Builder) -> tuple[str, ...]:
        if end == "view":  # space is one axis to begin with
            x = b.emit(View((*shape[:2], int(np.prod(shape[2:])))), b.emit(RELU, "x"))
        else:
            x = b.emit(RELU, "x")
        y = last(b, x)
        seen = [y]
        for kind in kinds:
            y = step(b, y, kind)
            seen.append(y)
        if b.type(y) == b.type(seen[0]):
            y = b.emit(ADD, y, seen[0])
        result = y if end == "last" else first(b, y)
        if end == "view" and b.type(result).shape[1:] == b.type(x).shape[1:]:
            result = b.emit(View(shape), result)
        return (result, b.emit(RELU, seen[len(seen) // 2])) if twice else (result,)

    return make(build, x=shape)


@settings(max_examples=60, deadline=None)
@given(sandwiches())
def test_any_steps_between_transposes(before):
    same_results(before, channels_first(before))


@settings(max_examples=20, deadline=None)
@given(sandwiches(), st.sampled_from([np.inf, -np.inf, np.nan]))
def test_what_is_not_finite_stays_so(before, value):
    x = array(*before.types["x"].shape, seed=7)
    x.flat[x.size // 2] = value
    after = channels_first(before)
    if after.inputs:
        expected, actual = interpret(before, {"x": x}), interpret(after, {"x": x})
        for name in expected:
            np.testing.assert_allclose(actual[name], expected[name], rtol=1e-5, atol=1e-5)


def mlp(b: Builder, x: str) -> str:
    return linear(b, b.emit(RELU, linear(b, norm(b, x), 8)), b.type(x).shape[-1])


def test_a_block_of_convnext_has_no_transposes():
    """x ─ transpose ─ norm ─ product ─ relu ─ product ─ transpose ─ add x"""
    before = make(lambda b: b.emit(ADD, first(b, mlp(b, last(b, "x"))), "x"), x=(2, 4, 3, 5))
    after = same_results(before, channels_first(before))
    assert {"Transpose", "MatMul", "View"}.isdisjoint(ops(after)) and ops(after).count("Conv") == 2


def test_tokens_of_an_image_have_its_space():
    """Two axes are one between a View and a Transpose, and the other way round."""

    def build(b: Builder) -> str:
        y = last(b, b.emit(View((1, 4, 15)), "x"))
        return b.emit(View((1, 4, 3, 5)), first(b, mlp(b, y)))

    before = make(build, x=(1, 4, 3, 5))
    after = same_results(before, channels_first(before))
    assert {"Transpose", "MatMul", "View"}.isdisjoint(ops(after))
    assert all(node.op.kernel == (1, 1) for node in after.nodes if isinstance(node.op, Conv))


@pytest.mark.parametrize("blocks", [1, 2])
def test_tokens_and_channels_are_mixed_in_turn(blocks):
    """[N, T, C] ─ transpose ─ products over T ─ transpose ─ add ─ products over C ─ add, as MLP-Mixer has them."""

    def build(b: Builder) -> str:
        y = "x"
        for _ in range(blocks):
            y = b.emit(ADD, last(b, mlp(b, last(b, norm(b, y)))), y)
            y = b.emit(ADD, mlp(b, y), y)
        return y

    before = make(build, x=(2, 7, 5))
    after = same_results(before, channels_first(before))
    assert ops(after).count("Transpose") <= ops(before).count("Transpose")


def into_rows(b: Builder) -> str:
    return mlp(b, last(b, "x"))


def from_rows(b: Builder) -> str:
    return first(b, b.emit(RELU, b.emit(View((1, 3, 5, 4)), "z")))


def between_attentions(b: Builder) -> str:
    """One transpose would go, two would come: the products of both ends are of other matrices."""
    y = b.emit(MatMul(), last(b, "x"), b.emit(RELU, "m"))
    return b.emit(MatMul(), linear(b, y, 4), b.emit(RELU, "m"))


@pytest.mark.parametrize("build", [into_rows, from_rows, between_attentions])
def test_what_saves_no_transposes_stays(build):
    before = make(build, x=(1, 4, 3, 5), z=(1, 15, 4), m=(4, 4))
    assert ops(channels_first(before)) == ops(before)
