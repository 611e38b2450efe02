"""Factors of channels go into the pointwise convolution after them."""

from __future__ import annotations

import pytest

from brickrt.graph.builder import Builder
from brickrt.graph.passes.fuse import fuse
from brickrt.graph.passes.fuse_channel_scales import FEWEST_PIXELS
from brickrt.ops.operators.conv import Conv
from tests.support.graphs.small_graphs import ADD, MUL, RELU, array, conv3, make, ops, same_results


def pointwise(b: Builder, x: str, bias: bool = False) -> str:
    extra = [b.constant(array(5), "b")] if bias else []
    op = Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0), bias=bias)
    return b.emit(op, x, b.constant(array(5, b.type(x).shape[1], 1, 1), "w"), *extra)


X = (2, 3, 16, FEWEST_PIXELS // 16)


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_product_is_read_as_factors(images, bias):
    """
    x ─ mul ─ conv ─ add ─
    s ──┘        z ──┘
    """

    def build(b: Builder) -> str:
        return b.emit(ADD, pointwise(b, b.emit(MUL, "s", "x"), bias), "z")

    before = make(build, x=X, s=(images, 3, 1, 1), z=(2, 5, *X[2:]))
    after = same_results(before, fuse(before))
    assert ops(after) == ["Conv"]
    assert after.nodes[0].inputs[0] == "x"


def read_twice(b: Builder) -> tuple[str, str]:
    y = b.emit(MUL, "x", "s")
    return pointwise(b, y), y


def window(b: Builder) -> str:
    """Winograd's algorithm would be lost."""
    return conv3(b, b.emit(MUL, "x", "s"), 4)


def more_than_a_product(b: Builder) -> str:
    return pointwise(b, b.emit(RELU, b.emit(MUL, "x", "s")))


@pytest.mark.parametrize("build", [read_twice, window, more_than_a_product])
def test_what_stays(build):
    before = make(build, x=X, s=(1, 3, 1, 1))
    assert "Map" in ops(same_results(before, fuse(before)))


@pytest.mark.parametrize(
    ("x", "s"), [((1, 3, 4, 5), (1, 3, 1, 1)), (X, (1, 1, 1, 1)), (X, (1, 1, *X[2:])), (X, ())], ids=str
)
def test_shapes_that_stay(x, s):
    before = make(lambda b: pointwise(b, b.emit(MUL, "x", "s")), x=x, s=s)
    assert "Map" in ops(same_results(before, fuse(before)))
