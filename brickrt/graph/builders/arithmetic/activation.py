"""Activation functions: each formula takes the ONNX attributes as keywords, with their ONNX defaults."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import channel_view, elementwise
from brickrt.graph.builders.scalar import (
    F64,
    absolute,
    add,
    div,
    erf,
    exp,
    greater,
    in_float32,
    less,
    like,
    log,
    maximum,
    minimum,
    mul,
    sigmoid,
    sub,
    tanh,
    where,
)
from brickrt.ops.expr import Expr, apply, cast


def relu(x: Expr) -> Expr:
    """max(x, 0)."""
    return maximum(x, like(x, 0))


def leaky_relu(x: Expr, alpha: float = 0.01) -> Expr:
    """x, or alpha·x where x is negative."""
    return where(less(x, like(x, 0)), mul(x, like(x, alpha)), x)


def elu(x: Expr, alpha: float = 1.0) -> Expr:
    """x, or alpha·(exp(x) - 1) where x is negative."""
    return where(less(x, like(x, 0)), mul(like(x, alpha), _decay(x)), x)


def _decay(x: Expr) -> Expr:
    """exp(x) - 1 for negative x; it does not overflow elsewhere."""
    return sub(exp(minimum(x, like(x, 0))), like(x, 1))


def selu(x: Expr, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Expr:
    """gamma·elu(x, alpha)."""
    return mul(like(x, gamma), elu(x, alpha))


def celu(x: Expr, alpha: float = 1.0) -> Expr:
    """x, or alpha·(exp(x / alpha) - 1) where x is negative."""
    falling = mul(like(x, alpha), sub(exp(div(x, like(x, alpha))), like(x, 1)))
    return add(maximum(x, like(x, 0)), minimum(falling, like(x, 0)))


def thresholded_relu(x: Expr, alpha: float = 1.0) -> Expr:
    """x where it is greater than alpha, else 0."""
    return where(greater(x, like(x, alpha)), x, like(x, 0))


def hard_sigmoid(x: Expr, alpha: float = 0.2, beta: float = 0.5) -> Expr:
    """alpha·x + beta, clipped to [0, 1]."""
    line = add(mul(x, like(x, alpha)), like(x, beta))
    return maximum(minimum(line, like(x, 1)), like(x, 0))


def hard_swish(x: Expr) -> Expr:
    """x·hard_sigmoid(x) with the slope 1/6."""
    return mul(x, hard_sigmoid(x, 1 / 6, 0.5))


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)), in a form that does not overflow.

    What rounding takes from 1 + e is added to the logarithm: where x is far below zero that is the whole result.
    """
    e = exp(apply("neg", absolute(x)))
    whole = add(e, like(x, 1))
    lost = sub(e, sub(whole, like(x, 1)))
    return add(maximum(x, like(x, 0)), add(log(whole), div(lost, whole)))


def softsign(x: Expr) -> Expr:
    """x / (1 + |x|)."""
    return div(x, add(absolute(x), like(x, 1)))


def gelu(x: Expr, approximate: str = "none") -> Expr:
    """x·Φ(x), Φ by erf or approximated by tanh."""
    if approximate == "tanh":
        cubic = mul(mul(x, like(x, 0.044715)), mul(x, x))
        gate = tanh(mul(add(x, cubic), like(x, math.sqrt(2 / math.pi))))
    else:
        gate = erf(mul(x, like(x, math.sqrt(0.5))))
    return mul(mul(x, like(x, 0.5)), add(gate, like(x, 1)))


def mish(x: Expr) -> Expr:
    """x · tanh(softplus(x)) = x · n / (n + 2) with n = e² + 2e, e = exp(x); beyond 20 the factor rounds to 1."""
    e = exp(minimum(x, like(x, 20)))
    n = mul(e, add(e, like(x, 2)))
    return mul(x, div(n, add(n, like(x, 2))))


def swish(x: Expr, alpha: float = 1.0) -> Expr:
    """x·sigmoid(alpha·x)."""
    return mul(x, sigmoid(x if alpha == 1 else mul(x, like(x, alpha))))


def shrink(x: Expr, bias: float = 0.0, lambd: float = 0.5) -> Expr:
    """x moved by `bias` towards 0, and 0 within ±lambd. Integers are computed in float64 and truncated."""
    if x.dtype.kind != "f":
        return cast(shrink(cast(x, F64), bias, lambd), x.dtype)
    inner = where(greater(x, like(x, lambd)), sub(x, like(x, bias)), like(x, 0))
    return where(less(x, like(x, -lambd)), add(x, like(x, bias)), inner)


def prelu(x: Expr, slope: Expr) -> Expr:
    """x, or slope·x where x is negative."""
    return where(less(x, like(x, 0)), mul(x, slope), x)


def swiglu(x: Expr, linear: Expr, alpha: float = 1.0) -> Expr:
    """swish(x)·linear."""
    return mul(swish(x, alpha), linear)


FORMULAS: dict[str, Callable[..., Expr]] = {
    "Relu": relu,
    "LeakyRelu": leaky_relu,
    "Elu": elu,
    "Selu": selu,
    "Celu": celu,
    "ThresholdedRelu": thresholded_relu,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": hard_swish,
    "Softplus": softplus,
    "Softsign": softsign,
    "Gelu": gelu,
    "Mish": mish,
    "Swish": swish,
    "Shrink": shrink,
    "SwiGLU": swiglu,
}


@builds("PRelu")
def parametric_relu(b: Builder, node: OnnxNode) -> str:
    """PRelu. A slope per channel may be a vector, as in models converted from opset 6."""
    x, slope = node.inputs
    shape, t = b.type(x).shape, b.type(slope)
    if t.rank == 1 and len(shape) > 2 and t.size == shape[1] and t.size not in (1, shape[-1]):
        slope = channel_view(b, slope, len(shape))
    return elementwise(b, in_float32(prelu), x, slope)


@builds(*FORMULAS)
def activation(b: Builder, node: OnnxNode) -> str:
    """One of FORMULAS; the node's attributes are its keywords."""
    formula = partial(FORMULAS[node.op_type], **node.attrs)
    return elementwise(b, in_float32(formula), *node.inputs)
