"""Taps of convolutions that fall on padding for all outputs go, with their weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt import Runtime
from brickrt.graph.builder import Builder
from brickrt.graph.ir import Graph
from brickrt.graph.passes.algebra.dead_taps import drop_dead_taps
from brickrt.ops.operators.conv import Conv
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.onnx_models import model, node, tensor, unknown
from tests.support.graphs.small_graphs import array, make


def convolution(shape: tuple[int, ...], op: Conv, outputs: int = 2, value: float = 0.0) -> Graph:
    """x → convolution, one weight of which is `value` more."""
    weights = array(outputs, shape[1] // op.groups, *op.kernel, seed=1)
    weights.flat[0] += value

    def build(b: Builder) -> str:
        return b.emit(op, "x", b.constant(weights, "w"))

    return make(build, x=shape)


def dropped(before: Graph) -> Conv:
    """The convolution after the pass, with weights that fit; the outputs have the same bits."""
    after = drop_dead_taps(before)
    x = {"x": array(*before.types["x"].shape, seed=7)}
    expected, actual = interpret(before, x), interpret(after, x)
    for name in expected:
        np.testing.assert_allclose(actual[name], expected[name], rtol=1e-6, atol=1e-6)
    (node,) = after.nodes
    assert isinstance(node.op, Conv) and after.constants[node.inputs[1]].shape[2:] == node.op.kernel
    return node.op


@st.composite
def convolutions(draw: st.DrawFn) -> Graph:
    """Draws a convolution of one to three dimensions, of which some are shorter than the window."""
    rank = draw(st.integers(1, 3))

    def each(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(least, most)) for _ in range(rank))

    kernel, strides, dilations, pads, ends = each(1, 4), each(1, 3), each(1, 5), each(0, 9), each(0, 9)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    extents = [max(e, span - a - b) for e, span, a, b in zip(each(1, 6), spans, pads, ends, strict=True)]
    groups = draw(st.sampled_from([1, 2]))
    return convolution((2, 4, *extents), Conv(kernel, strides, dilations, pads, ends, groups))


@settings(max_examples=80, deadline=None)
@given(convolutions())
def test_any_convolution(before):
    op, was = dropped(before), before.nodes[0].op
    assert isinstance(was, Conv)
    assert all(new <= old for new, old in zip(op.kernel, was.kernel, strict=True))
    assert min(op.pads + op.pads_end) >= 0


@pytest.mark.parametrize(
    ("shape", "dilations", "kernel"),
    [
        ((1, 2, 1, 7, 7), (1, 1, 1), (1, 3, 3)),  # one plane
        ((1, 2, 5, 5, 5), (6, 6, 6), (1, 1, 1)),  # pointwise
        ((1, 2, 5, 5, 5), (4, 5, 1), (3, 1, 3)),
        ((1, 2, 2, 2, 2), (1, 1, 1), (3, 3, 3)),  # every tap falls on some element
    ],
)
def test_what_stays(shape, dilations, kernel):
    assert dropped(convolution(shape, Conv((3, 3, 3), (1, 1, 1), dilations, dilations, dilations))).kernel == kernel


def test_infinite_weights_meet_the_padding():
    before = convolution((1, 2, 1, 4), Conv((3, 1), (1, 1), (1, 1), (1, 0), (1, 0)), value=np.inf)
    assert drop_dead_taps(before).nodes == before.nodes


@pytest.mark.parametrize("size", [9, 24])
def test_networks_run_with_the_taps_of_their_size(size):
    """A dilation of 12 is pointwise at 9², and at 24² it is not."""
    weights = array(32, 32, 3, 3, seed=3)
    layer = node("Conv", "x w", "y", dilations=[12, 12], pads=[12] * 4)
    source = model([layer], [tensor("x", (1, 32, "h", "v"))], unknown("y"), w=weights)
    x = array(1, 32, size, size, seed=4)
    y = Runtime(source, device="cpu", threads=1).execute({"x": x})["y"]
    expected = np.zeros((32, size, size))
    padded = np.pad(x[0].astype(np.float64), [(0, 0), (12, 12), (12, 12)])
    for r in range(3):
        for c in range(3):
            part = padded[:, 12 * r : 12 * r + size, 12 * c : 12 * c + size]
            expected += np.einsum("oc,chw->ohw", weights[:, :, r, c], part)
    np.testing.assert_allclose(y[0], expected, atol=1e-5 * np.abs(expected).max())


def test_long_axes_take_no_longer():
    """What taps fall on follows from the ends: nothing is made for each output."""
    before = convolution((1, 2, 1, 1 << 40), Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1, False))
    (node,) = drop_dead_taps(before).nodes
    assert node.op.kernel == (1, 3)
