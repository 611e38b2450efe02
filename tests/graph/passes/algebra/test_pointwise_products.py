"""Pointwise convolutions before resizing and joining of channels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.graph.builder import Builder
from brickrt.graph.builders.spatial.resize_taps import AxisResize, axis_taps, nearest_table
from brickrt.graph.ir import Graph
from brickrt.graph.passes.algebra.pointwise_products import move_products, resize_cost
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.move import Concat, Take
from brickrt.ops.operators.sampling.interp import Interp
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.small_graphs import RELU, array, make, ops, same_results

F32 = np.dtype(np.float32)
TRANSFORMS = ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]


def pointwise(b: Builder, x: str, outputs: int, bias: bool = True, seed: int = 1) -> str:
    rank = b.type(x).rank - 2
    ones, none = (1,) * rank, (0,) * rank
    weights = b.constant(array(outputs, b.type(x).shape[1], *ones, seed=seed), "w")
    extra = [b.constant(array(outputs, seed=seed), "b")] if bias else []
    return b.emit(Conv(ones, ones, ones, none, none, bias=bias), x, weights, *extra)


def resized(b: Builder, x: str, sizes: tuple[int, ...], mode: str, transform: str = "half_pixel") -> str:
    """A Resize of the axes after channels as its builder emits it."""
    space = b.type(x).shape[2:]
    axes = [AxisResize(2 + k, old, new, new / old) for k, (old, new) in enumerate(zip(space, sizes, strict=True))]
    if mode == "nearest":
        tables = [tuple(nearest_table(a, transform, "round_prefer_floor").tolist()) for a in axes]
        return b.emit(Take((None, None, *tables)), x)
    attrs = {"mode": mode, "cubic_coeff_a": -0.75}
    return b.emit(Interp((None, None, *(axis_taps(a, transform, attrs) for a in axes))), x)


@st.composite
def heads(draw: st.DrawFn) -> Graph:
    """Maps of features, some of them products and some resized, joined, and products of all."""
    size = tuple(draw(st.integers(1, 6)) for _ in range(draw(st.integers(1, 3))))
    spaces = [tuple(draw(st.integers(1, 6)) for _ in size) for _ in range(draw(st.integers(1, 3)))]
    modes = [draw(st.sampled_from(["linear", "nearest", "cubic", "none"])) for _ in spaces]
    batch, channels = draw(st.integers(1, 2)), [draw(st.integers(1, 20)) for _ in spaces]
    transform, before = draw(st.sampled_from(TRANSFORMS)), draw(st.integers(0, 2))
    outputs = draw(st.lists(st.integers(1, 20), min_size=1, max_size=2))

    def build(b: Builder) -> str:
        parts = []
        for k, mode in enumerate(modes):
            y = b.emit(RELU, f"x{k}")
            for seed in range(before):
                y = pointwise(b, y, 4 + seed, bias=k % 2 == 0, seed=seed + k)
            parts.append(y if mode == "none" else resized(b, y, size, mode, transform))
        y = parts[0] if len(parts) == 1 else b.emit(Concat(1), *parts)
        for k, count in enumerate(outputs):
            y = pointwise(b, y, count, bias=k == 0, seed=7 + k)
        return b.emit(RELU, y)

    shapes = {f"x{k}": (batch, channels[k], *(size if modes[k] == "none" else space)) for k, space in enumerate(spaces)}
    return make(build, **shapes)


@settings(max_examples=60, deadline=None)
@given(heads())
def test_any_head(before):
    same_results(before, move_products(before))


def head(b: Builder) -> str:
    """
    x ────────── concat ─ conv
    z ─ resize ────┘
    """
    return pointwise(b, b.emit(Concat(1), "x", resized(b, "z", (5, 7), "linear")), 4)


def test_a_resized_part_is_multiplied_first():
    before = make(head, x=(1, 3, 5, 7), z=(1, 6, 2, 3))
    assert ops(same_results(before, move_products(before))) == ["Conv", "Conv", "Interp", "Map"]


def test_an_epilogue_and_what_it_reads_follow_the_sum():
    def build(b: Builder) -> str:
        joined = b.emit(Concat(1), "x", resized(b, "z", (5, 7), "linear"))
        weights, bias = b.constant(array(4, 9, 1, 1), "w"), b.constant(array(4), "b")
        step = apply("max", apply("add", arg(0, F32), arg(1, F32)), const(0.0, F32))
        op = Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0), bias=True, epilogue=step)
        return b.emit(op, joined, weights, bias, "r")

    before = make(build, x=(1, 3, 5, 7), z=(1, 6, 2, 3), r=(1, 4, 5, 7))
    assert ops(same_results(before, move_products(before))) == ["Conv", "Conv", "Interp", "Map", "Map"]


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_reaches_the_same_elements(value):
    before = make(head, x=(1, 3, 5, 7), z=(1, 6, 2, 3))
    feeds = {name: array(*before.types[name].shape, seed=7) for name in before.inputs}
    feeds["z"][0, 2, 1, 1] = feeds["x"][0, 1, 4, 4] = value
    (expected,), (actual,) = (interpret(graph, feeds).values() for graph in (before, move_products(before)))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    assert not np.isfinite(expected).all() and np.isfinite(expected).any()


def in_a_row(b: Builder) -> str:
    """As one they would be less, but an infinity, of which the first makes several, would not become NaN."""
    return pointwise(b, pointwise(b, "x", 8), 4)


def read_twice(b: Builder) -> tuple[str, str]:
    y = resized(b, "x", (6, 8), "linear")
    return pointwise(b, y, 4), b.emit(RELU, y)


def smaller(b: Builder) -> str:
    return pointwise(b, resized(b, "x", (2, 3), "linear"), 8)


def cubic(b: Builder) -> str:
    """Weights that are negative may make a sum of much larger numbers."""
    return pointwise(b, resized(b, "x", (6, 8), "cubic"), 4)


def filled(b: Builder) -> str:
    """Products of what fills are something else."""
    return pointwise(b, b.emit(Take((None, None, (-1, 0, 1, 2, -1), None), 1.0), "x"), 4)


def joined_only(b: Builder) -> str:
    return pointwise(b, b.emit(Concat(1), "x", b.emit(RELU, "x")), 4)


def mostly_joined(b: Builder) -> str:
    """A quarter of the channels is resized."""
    return pointwise(b, b.emit(Concat(1), *["x"] * 3, resized(b, "z", (3, 4), "linear")), 4)


@pytest.mark.parametrize("build", [mostly_joined, in_a_row, read_twice, smaller, cubic, filled, joined_only])
def test_what_stays(build):
    before = make(build, x=(1, 8, 3, 4), z=(1, 8, 1, 2))
    assert ops(move_products(before)) == ops(before)


def test_only_means_of_pixels_commute():
    assert resize_cost(Take((None, (0, 0), None))) is None
    assert resize_cost(Take((None, None, (0, -1)))) is None
    taps = axis_taps(AxisResize(2, 3, 6, 2.0), "half_pixel", {"mode": "linear", "cubic_coeff_a": 0})
    assert resize_cost(Interp((None, None, taps))) is not None
    assert resize_cost(Interp((None, taps, None))) is None
