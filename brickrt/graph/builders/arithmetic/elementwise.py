"""Arithmetic, logic and comparisons, element by element."""

from __future__ import annotations

from functools import partial, reduce

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import elementwise, optional
from brickrt.graph.builders.scalar import (
    F64,
    add,
    div,
    either,
    greater_equal,
    in_float32,
    less,
    like,
    maximum,
    minimum,
    square,
    where,
)
from brickrt.ops.definitions.elementwise_functions import FUNCTIONS
from brickrt.ops.expr import Const, Expr, apply, cast, const

_UNARY, _BINARY = (
    {function.onnx: name for name, function in FUNCTIONS.items() if function.onnx and function.operands == operands}
    for operands in (1, 2)
)
MOST_OPERANDS = 60
"""That are combined in one expression."""
_FOLDS = {"Max": maximum, "Min": minimum, "Sum": add, "Mean": add}


@builds(*_UNARY)
def unary(b: Builder, node: OnnxNode) -> str:
    """A function of one operand, computed in float32 for float16."""
    return elementwise(b, in_float32(partial(apply, _UNARY[node.op_type])), node.inputs[0])


@builds(*_BINARY)
def binary(b: Builder, node: OnnxNode) -> str:
    """A function of two operands, in their own type."""
    return elementwise(b, partial(apply, _BINARY[node.op_type]), *node.inputs)


@builds(*_FOLDS)
def variadic(b: Builder, node: OnnxNode) -> str:
    """A function of any number of operands, two at a time."""
    first, *others = node.inputs

    def fold(*operands: Expr) -> Expr:
        return reduce(_FOLDS[node.op_type], operands)

    def mean(*operands: Expr) -> Expr:
        total = fold(*operands)
        return div(total, like(total, len(node.inputs)))

    while len(others) >= MOST_OPERANDS:  # an expression is gone through by functions that call themselves
        first = elementwise(b, in_float32(fold), first, *others[: MOST_OPERANDS - 1])
        others = others[MOST_OPERANDS - 1 :]
    if not others:
        return first
    return elementwise(b, in_float32(mean if node.op_type == "Mean" else fold), first, *others)


@builds("Mod")
def modulo(b: Builder, node: OnnxNode) -> str:
    """The remainder, with the sign of the divisor, or with `fmod` that of the dividend."""
    return elementwise(b, partial(apply, "fmod" if node.attrs.get("fmod") else "mod"), *node.inputs)


@builds("Where")
def choose(b: Builder, node: OnnxNode) -> str:
    """The first of two values where the condition holds, else the second."""
    return elementwise(b, where, *node.inputs)


@builds("IsInf")
def is_infinite(b: Builder, node: OnnxNode) -> str:
    """Whether elements are infinite, of either sign or of the one asked for."""
    signs = bool(node.attrs.get("detect_positive", 1)), bool(node.attrs.get("detect_negative", 1))
    tests = {(True, True): "isinf", (True, False): "isposinf", (False, True): "isneginf"}
    if signs not in tests:
        b.check_constant(b.type(node.inputs[0]).shape, np.dtype(bool))
        return b.constant(np.zeros(b.type(node.inputs[0]).shape, bool))
    return elementwise(b, partial(apply, tests[signs]), node.inputs[0])


@builds("Clip")
def clip(b: Builder, node: OnnxNode) -> str:
    """The upper bound wins where the bounds cross."""
    x = node.inputs[0]
    for index, bound, function in ((1, "min", maximum), (2, "max", minimum)):
        if name := optional(node, index):
            x = elementwise(b, function, x, name)
        elif bound in node.attrs:
            limit = const(node.attrs[bound], b.type(x).dtype)
            x = elementwise(b, lambda value, f=function, c=limit: f(value, c), x)
    return x


@builds("Pow")
def power(b: Builder, node: OnnxNode) -> str:
    """x to the y."""
    return elementwise(b, _power, *node.inputs)


def _power(x: Expr, y: Expr) -> Expr:
    """x to the y in the type of x; an integer to a fractional power goes through float64."""
    if isinstance(y, Const) and y.value == 2:
        return square(x)
    if x.dtype.kind != "f" and y.dtype.kind == "f":
        return cast(apply("pow", cast(x, F64), cast(y, F64)), x.dtype)
    return in_float32(partial(apply, "pow"))(x, cast(y, x.dtype))


@builds("BitShift")
def shift(b: Builder, node: OnnxNode) -> str:
    """Bits moved left or right; all of them may be moved out."""
    return elementwise(b, _shift_right if node.attrs["direction"] == "RIGHT" else _shift_left, *node.inputs)


def _shift_left(x: Expr, y: Expr) -> Expr:
    return where(_beyond(x, y), like(x, 0), apply("shl", x, y))


def _shift_right(x: Expr, y: Expr) -> Expr:
    signed = x.dtype.kind == "i"
    filled = where(less(x, like(x, 0)), like(x, -1), like(x, 0)) if signed else like(x, 0)
    return where(_beyond(x, y), filled, apply("shr", x, y))


def _beyond(x: Expr, y: Expr) -> Expr:
    """Whether a shift by `y` leaves nothing of `x` but its sign."""
    return either(less(y, like(y, 0)), greater_equal(y, like(y, 8 * x.dtype.itemsize)))
