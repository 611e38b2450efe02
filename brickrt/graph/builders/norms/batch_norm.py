"""Batch normalization at inference: a multiplication and an addition per channel, which convolutions absorb."""

from __future__ import annotations

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import channel_view, elementwise, require_float, uses, view
from brickrt.graph.builders.scalar import add, div, in_float32, like, mul, sqrt, sub, wide_type
from brickrt.graph.errors import Unsupported
from brickrt.ops.expr import Expr, cast


@builds("BatchNormalization")
def batch_norm(b: Builder, node: OnnxNode) -> str | tuple[str, ...]:
    """Batch normalization by running statistics; in training it runs on the host."""
    x = node.inputs[0]
    require_float(b, *node.inputs)
    if node.attrs.get("training_mode", 0) or any(uses(b, node, k) for k in range(1, len(node.outputs))):
        raise Unsupported("batch normalization in training")
    if b.type(x).rank < 2:
        raise Unsupported("batch normalization without channels")
    y = _apply(b, x, node.inputs[1:5], node.attrs.get("epsilon", 1e-5))
    return (y, *("",) * (len(node.outputs) - 1)) if len(node.outputs) > 1 else y


def _apply(b: Builder, x: str, parameters: tuple[str, ...], epsilon: float) -> str:
    known = [value for name in parameters if (value := b.known(name)) is not None]
    if len(known) < len(parameters):
        return _live(b, x, [_broadcast(b, name, x) for name in parameters], epsilon)
    scale, bias, mean, var = (value.astype(np.float64) for value in known)
    factor = scale / np.sqrt(var + epsilon)
    dtype = wide_type(b.type(x).dtype)
    names = [b.constant(a.astype(dtype), hint) for a, hint in ((factor, "scale"), (bias - mean * factor, "shift"))]
    factor_name, shift_name = (_broadcast(b, name, x) for name in names)
    return elementwise(b, in_float32(_scaled), x, factor_name, shift_name, hint="scaled")


def _scaled(x: Expr, factor: Expr, shift: Expr) -> Expr:
    """The product and the sum."""
    return add(mul(x, factor), shift)


def _broadcast(b: Builder, name: str, x: str) -> str:
    """A parameter per channel, or (opset 7, spatial=0) one per element of a sample, against the input."""
    t = b.type(name)
    return channel_view(b, name, b.type(x).rank) if t.rank == 1 else view(b, name, (1, *t.shape))


def _live(b: Builder, x: str, parameters: list[str], epsilon: float) -> str:
    """Batch normalization by statistics that are no constants."""
    dtype = b.type(x).dtype

    def compute(*args: Expr) -> Expr:
        value, scale, bias, mean, var = (cast(a, wide_type(dtype)) for a in args)
        factor = div(scale, sqrt(add(var, like(var, epsilon))))
        return cast(add(mul(sub(value, mean), factor), bias), dtype)

    return elementwise(b, compute, x, *parameters)
