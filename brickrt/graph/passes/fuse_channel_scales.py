"""Factors of channels before a pointwise convolution go into its weights, at run time (squeeze and excitation).

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


def scale_weights(edit: Rewriter, node: Node) -> None:
    """Has a convolution scale its input's channels itself, if it alone reads the product."""
    operands = _operands(edit, node)
    conv = edit.only_reader(node.output)
    if operands is None or conv is None or not isinstance(conv.op, Conv) or not _may_scale(edit, conv, node):
        return
    x, factors = operands
    main = conv.op.main
    op = replace(conv.op, channel_scaled=True)
    inputs = (x, *conv.inputs[1:main], factors, *conv.inputs[main:])
    edit.put(replace(conv, op=op, inputs=inputs, origin=origins([node, conv])))
    edit.remove(node.output)


def _operands(edit: Rewriter, node: Node) -> tuple[str, str] | None:
    """What a Map multiplies, if it only multiplies a tensor by a factor per channel: the tensor and the factors."""
    if not isinstance(node.op, Map) or len(node.inputs) != 2:
        return None
    expr, shape = node.op.expr, edit.types[node.output].shape
    if not isinstance(expr, Apply) or expr.fn != "mul" or {type(a) for a in expr.args} != {Arg} or len(shape) < 3:
        return None
    for x, factors in (node.inputs, node.inputs[::-1]):
        images = {(batch, shape[1], *(1 for _ in shape[2:])) for batch in (1, shape[0])}
        if edit.types[factors].shape in images and edit.types[x].shape == shape:
            return x, factors
    return None


def _may_scale(edit: Rewriter, conv: Node, node: Node) -> bool:
    """Whether a pointwise convolution reads the product as its input, and that only, and scaling its weights pays."""
    op = conv.op
    assert isinstance(op, Conv)
    constant = all(name in edit.constants for name in conv.inputs[1:2])
    reads = conv.inputs[0] == node.output and node.output not in conv.inputs[1:]
    float32 = all(edit.types[name].dtype == np.float32 for name in (*node.inputs, conv.inputs[1]))
    pointwise = op.groups == 1 and math.prod(op.kernel) == 1 and not op.channel_scaled
    pixels = math.prod(edit.types[conv.output].shape[2:])
    return constant and reads and float32 and pointwise and pixels >= FEWEST_PIXELS
