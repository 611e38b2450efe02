"""Fuses factors of channels into the pointwise convolution after them, which scales its weights when it runs.

This is the end of squeeze and excitation:

x ──── mul ─ conv          conv of x, s
s [C] ─┘              →
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from brickrt.graph.ir import Node
from brickrt.graph.rewriter import Rewriter, origins
from brickrt.ops.expr import Apply, Arg
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map

FEWEST_PIXELS = 512
"""Weights are scaled once per task: fewer pixels would not make up for that."""


def fuse_channel_scales(rewriter: Rewriter, node: Node) -> None:
    """Makes a convolution scale the channels of its input itself, if nobody else reads the scaled tensor."""
    operands = _operands(rewriter, node)
    conv = rewriter.only_reader(node.output)
    if operands is None or conv is None or not isinstance(conv.op, Conv) or not _may_scale(rewriter, conv, node):
        return
    x, factors = operands
    main = conv.op.main
    op = replace(conv.op, channel_scaled=True)
    inputs = (x, *conv.inputs[1:main], factors, *conv.inputs[main:])
    rewriter.put(replace(conv, op=op, inputs=inputs, origin=origins([node, conv])))
    rewriter.remove(node.output)


def _operands(rewriter: Rewriter, node: Node) -> tuple[str, str] | None:
    """The tensor and the factors of a Map that multiplies channels by a factor each; None for other nodes."""
    if not isinstance(node.op, Map) or len(node.inputs) != 2:
        return None
    expr, shape = node.op.expr, rewriter.types[node.output].shape
    if not isinstance(expr, Apply) or expr.fn != "mul" or {type(a) for a in expr.args} != {Arg} or len(shape) < 3:
        return None
    for x, factors in (node.inputs, node.inputs[::-1]):
        images = {(batch, shape[1], *(1 for _ in shape[2:])) for batch in (1, shape[0])}
        if rewriter.types[factors].shape in images and rewriter.types[x].shape == shape:
            return x, factors
    return None


def _may_scale(rewriter: Rewriter, conv: Node, node: Node) -> bool:
    """Whether a pointwise convolution reads the product as its input only, and scaling its weights costs less."""
    op = conv.op
    assert isinstance(op, Conv)
    constant = all(name in rewriter.constants for name in conv.inputs[1:2])
    reads = conv.inputs[0] == node.output and node.output not in conv.inputs[1:]
    float32 = all(rewriter.types[name].dtype == np.float32 for name in (*node.inputs, conv.inputs[1]))
    pointwise = op.groups == 1 and math.prod(op.kernel) == 1 and not op.channel_scaled
    pixels = math.prod(rewriter.types[conv.output].shape[2:])
    return constant and reads and float32 and pointwise and pixels >= FEWEST_PIXELS
