"""Takes taps away that fall on padding for every output of a convolution, with their weights.

A 3×3×3 convolution of images that are one plane deep is a 3×3 convolution, and one with a dilation as long as the image
is pointwise: a third or a ninth of the weights is left to be packed, and algorithms are chosen for what is left.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from brickrt.graph.derived_constants import DERIVED
from brickrt.graph.ir import Graph, Node
from brickrt.graph.rewriter import Rewriter
from brickrt.ops.operators.conv import Conv

Taps = tuple[int, int]
"""The first tap along an axis that stays, and the one behind the last."""


def drop_dead_taps(graph: Graph) -> Graph:
    """An equal graph whose convolutions with constant weights have no outermost taps on padding alone."""
    rewriter = Rewriter(graph)
    for node in rewriter.walk():
        if isinstance(node.op, Conv) and node.inputs[1] in rewriter.constants:
            _drop(rewriter, node, node.op)
    return rewriter.graph()


def _drop(rewriter: Rewriter, node: Node, op: Conv) -> None:
    x, out = (rewriter.types[name].shape for name in (node.inputs[0], node.output))
    taps = [_kept_taps(op, axis, x[2 + axis], out[2 + axis]) for axis in range(len(op.kernel))]
    if taps == [(0, count) for count in op.kernel]:
        return
    weights = rewriter.constants[node.inputs[1]]
    if weights.dtype.kind == "f" and not np.isfinite(weights).all():
        return  # by the definition padding times infinity is NaN
    inside = tuple(slice(*pair) for pair in taps)
    made = DERIVED.get(
        ("live taps", *taps), (weights,), lambda: np.ascontiguousarray(weights[(slice(None), slice(None), *inside)])
    )
    name = rewriter.constant(made, f"{node.inputs[1]}:live")
    rewriter.put(replace(node, op=_without(op, taps), inputs=(node.inputs[0], name, *node.inputs[2:])))


def _kept_taps(op: Conv, axis: int, extent: int, outputs: int) -> Taps:
    """The taps along an axis between the first and the last that fall on one of `extent` elements for one of `outputs`
    outputs. At least one, and those without which padding would be negative."""
    count, stride, dilation = op.kernel[axis], op.strides[axis], op.dilations[axis]
    if not extent or not outputs:
        return 0, count
    starts = [k * dilation - op.pads[axis] for k in range(count)]  # where taps fall for the first output
    firsts = [max(0, -(start // stride)) for start in starts]  # the first output for which they fall behind the padding
    found = zip(starts, firsts, strict=True)
    live = [k for k, (at, first) in enumerate(found) if first < outputs and at + first * stride < extent]
    if not live:
        return 0, count
    before = min(live[0], op.pads[axis] // dilation)
    behind = min(count - 1 - live[-1], op.pads_end[axis] // dilation)
    return max(0, before), count - max(0, behind)


def _without(op: Conv, taps: list[Taps]) -> Conv:
    """The convolution with these taps alone."""
    ends = zip(taps, op.kernel, op.dilations, strict=True)
    before, behind = zip(*((lo * d, (count - hi) * d) for (lo, hi), count, d in ends), strict=True)
    return replace(
        op,
        kernel=tuple(hi - lo for lo, hi in taps),
        pads=tuple(pad - less for pad, less in zip(op.pads, before, strict=True)),
        pads_end=tuple(pad - less for pad, less in zip(op.pads_end, behind, strict=True)),
    )
