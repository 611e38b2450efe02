"""Operators that are standard by now, under the names they had before."""

from __future__ import annotations

from brickrt.graph.contrib.body import ContributedBody, defines
from brickrt.ops.definitions.sampled_points import FORMER_NAMES

INT64 = 7
"""ONNX's number of the type."""


@defines("GatherND", "Range", "Trilu", needs=range(1))
def same(b: ContributedBody) -> None:
    """As the standard operator."""
    b.give(b.add(b.op_type, *b.inputs, **b.kept("upper")))


@defines("ExpandDims", needs=range(2))
def expand_dims(b: ContributedBody) -> None:
    """Unsqueeze at one axis."""
    axis = b.add("Reshape", b.add("Cast", b.input(1), to=INT64), b.integers(1))
    b.give(b.add("Unsqueeze", b.input(0), axis))


@defines("Pad", needs=range(2))
def pad(b: ContributedBody) -> None:
    """As the standard operator; pads may be a row."""
    pads = b.add("Reshape", b.input(1), b.integers(-1))
    value = [b.add("Reshape", b.input(2), b.integers())] if b.input(2) else []
    b.give(b.add("Pad", b.input(0), pads, *value, **b.kept("mode")))


@defines("GridSample", needs=range(2))
def grid_sample(b: ContributedBody) -> None:
    """As the standard operator."""
    mode = b.attribute("mode", "bilinear")
    how = b.kept("align_corners", "padding_mode")
    b.give(b.add("GridSample", *b.inputs[:2], mode=FORMER_NAMES.get(mode, mode), **how))
