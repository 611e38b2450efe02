"""Gates go into the convolution that makes both halves."""

from __future__ import annotations

import pytest

from brickrt.graph.builder import Builder
from brickrt.graph.passes.fuse import fuse
from brickrt.ops.expr import apply
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import Take
from tests.support.graphs.small_graphs import ADD, MUL, X, Y, array, conv3, make, ops, same_results

GLU = Map(apply("mul", X, apply("sigmoid", Y)))


def part(b: Builder, x: str, lo: int, hi: int) -> str:
    """Channels lo…hi-1."""
    return b.emit(Take((None, tuple(range(lo, hi)), *(None,) * (b.type(x).rank - 2))), x)


def pointwise(b: Builder, x: str, channels: int) -> str:
    w = b.constant(array(channels, b.type(x).shape[1], 1, 1), "w")
    bias = b.constant(array(channels), "b")
    return b.emit(Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0), bias=True), x, w, bias)


def depthwise(b: Builder, x: str) -> str:
    channels = b.type(x).shape[1]
    w = b.constant(array(channels, 1, 3, 3), "w")
    return b.emit(Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), groups=channels), x, w)


@pytest.mark.parametrize("op", [MUL, GLU], ids=["product", "sigmoid"])
@pytest.mark.parametrize("swapped", [False, True])
def test_gate_of_a_pointwise_convolution(op, swapped):
    """
    x ─ conv ─┬─ half ─┬─ mul
              └─ half ─┘
    """

    def build(b: Builder) -> str:
        y = pointwise(b, "x", 10)
        halves = part(b, y, 0, 5), part(b, y, 5, 10)
        return b.emit(op, *(reversed(halves) if swapped else halves))

    before = make(build, x=(2, 3, 4, 5))
    after = same_results(before, fuse(before))
    assert ops(after) == ["Conv"]


def test_gate_of_a_depthwise_convolution_with_a_residual():
    def build(b: Builder) -> str:
        y = depthwise(b, "x")
        return b.emit(ADD, "z", b.emit(MUL, part(b, y, 0, 16), part(b, y, 16, 32)))

    before = make(build, x=(1, 32, 4, 5), z=(1, 16, 4, 5))
    after = same_results(before, fuse(before))
    assert ops(after) == ["Conv"]


def test_three_parts():
    def build(b: Builder) -> str:
        y = pointwise(b, "x", 12)
        return b.emit(ADD, b.emit(MUL, part(b, y, 0, 4), part(b, y, 8, 12)), part(b, y, 4, 8))

    before = make(build, x=(1, 3, 2, 2))
    assert ops(same_results(before, fuse(before))) == ["Conv"]


def unequal(b: Builder) -> str:
    y = pointwise(b, "x", 10)
    return b.emit(MUL, part(b, y, 0, 5), part(b, y, 4, 9))


def read_elsewhere(b: Builder) -> tuple[str, str]:
    y = pointwise(b, "x", 10)
    a = part(b, y, 0, 5)
    return b.emit(MUL, a, part(b, y, 5, 10)), a


def window(b: Builder) -> str:
    """Winograd's algorithm would be lost."""
    y = conv3(b, "x", 10)
    return b.emit(MUL, part(b, y, 0, 5), part(b, y, 5, 10))


def parts_of_vectors(b: Builder) -> str:
    y = depthwise(b, pointwise(b, "x", 12))
    return b.emit(MUL, part(b, y, 0, 6), part(b, y, 6, 12))


def two_sources(b: Builder) -> str:
    return b.emit(MUL, part(b, pointwise(b, "x", 10), 0, 5), part(b, depthwise(b, pointwise(b, "x", 10)), 5, 10))


@pytest.mark.parametrize("build", [unequal, read_elsewhere, window, parts_of_vectors, two_sources])
def test_what_stays(build):
    before = make(build, x=(1, 3, 4, 5))
    assert "Take" in ops(same_results(before, fuse(before)))


def test_scale_and_shift_of_a_larger_image_stay():
    """
    s ─ conv ─┬─ scale ─ mul ─ add
              └─ shift ────────┘       what is computed of one pixel is spread over all of x
    """

    def build(b: Builder) -> str:
        y = pointwise(b, "s", 6)
        return b.emit(ADD, b.emit(MUL, "x", part(b, y, 0, 3)), part(b, y, 3, 6))

    before = make(build, x=(2, 3, 4, 5), s=(2, 3, 1, 1))
    assert ops(same_results(before, fuse(before))).count("Take") == 2


def test_halves_of_a_vector_that_is_computed():
    def build(b: Builder) -> str:
        y = b.emit(Map(apply("add", X, X)), "x")
        low, high = (b.emit(Take((tuple(range(k, k + 4)),)), y) for k in (0, 4))
        return b.emit(MUL, low, high)

    before = make(build, x=(8,))
    assert "Take" in ops(same_results(before, fuse(before)))
