"""Prints expressions as LLVM IR on register values: scalars or vectors, of the types that `register_type` gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.arithmetic import integers
from brickrt.ops.cpu.arithmetic.conversions import compare, convert
from brickrt.ops.cpu.arithmetic.functions import hyperbolic, inverse_trigonometry, trigonometry, vector_math
from brickrt.ops.cpu.arithmetic.functions.scalar_math import LIBM, libm
from brickrt.ops.cpu.arithmetic.functions.vector_math import lanes_of
from brickrt.ops.cpu.arithmetic.open_constants import OpenConst
from brickrt.ops.cpu.arithmetic.quantize import (
    Zero,
    less_zero,
    rounded_byte,
    store_byte,
    store_shifted_byte,
    zero_vector,
)
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I1, I32, computed_type, fill, register_type, vector
from brickrt.ops.definitions.elementwise_functions import FUNCTIONS, named
from brickrt.ops.expr import COMPARE, TEST, Apply, Arg, Const, Expr, distinct
from brickrt.ops.types import is_floating

VECTORIZED: dict[str, Callable[..., ir.Value]] = {
    "exp": vector_math.exp,
    "log": vector_math.log,
    "tanh": vector_math.tanh,
    "erf": vector_math.erf,
    "sigmoid": vector_math.sigmoid,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
    "tan": trigonometry.tan,
    "asin": inverse_trigonometry.asin,
    "acos": inverse_trigonometry.acos,
    "atan": inverse_trigonometry.atan,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "asinh": hyperbolic.asinh,
    "acosh": hyperbolic.acosh,
    "atanh": hyperbolic.atanh,
}
INTRINSIC = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "roundeven", "abs": "fabs"}
CONTRACTING = named(lambda function: function.contracting)
EFFORT = {name: function.cpu_effort for name, function in FUNCTIONS.items()}


def emit_expr(f: FunctionEmitter, expr: Expr, operands: Sequence[ir.Value], lanes: int) -> ir.Value:
    """The expression's value; `Arg(k)` is `operands[k]`, of the register type of its dtype with `lanes` lanes.

    Division by zero and shifts by any count are safe in every lane. Equal subexpressions are computed once.
    """
    return _Printer(f, operands, lanes).value(expr)


def effort(expr: Expr) -> int:
    """Roughly the machine operations per vector, to decide how far to unroll."""
    return sum(EFFORT.get(e.fn, 1) for e in distinct(expr) if isinstance(e, Apply))


def unroll_of(operations: int) -> int:
    """Vectors per loop step: long expressions overlap by themselves."""
    return 4 if operations <= 8 else 2 if operations <= 32 else 1


class _Printer:
    """One expression under way: values by node, and by function and argument values, so that equal ones are shared.

    A node is known by its identity, so it is held: another one may come to lie where it was.
    """

    def __init__(self, f: FunctionEmitter, operands: Sequence[ir.Value], lanes: int) -> None:
        self.f, self.operands, self.lanes = f, operands, lanes
        self.by_node: dict[int, tuple[Expr, ir.Value]] = {}
        self.by_content: dict[tuple, ir.Value] = {}

    def value(self, expr: Expr) -> ir.Value:
        if id(expr) not in self.by_node:
            self.by_node[id(expr)] = expr, self._compute(expr)
        return self.by_node[id(expr)][1]

    def _compute(self, expr: Expr) -> ir.Value:
        if isinstance(expr, Arg):
            return self.operands[expr.index]
        if isinstance(expr, Const):
            fixed = expr
            return self._shared(("const", expr.dtype, repr(expr.value)), lambda: constant(fixed, self.lanes))
        if isinstance(expr, OpenConst):
            read = expr
            return self._shared(("open", expr.place), lambda: read.emit(self.f, self.lanes))
        if not isinstance(expr, Apply):
            raise ValueError(f"expression node {type(expr).__name__} has no LLVM IR")
        byte = rounded_byte(expr)
        if byte:
            inner, zero = byte
            if not isinstance(zero, Apply):
                return store_byte(self.f, self.value(inner), zero)
            return store_shifted_byte(self.f, self.value(inner), self.value(zero), self.value(zero.args[0]))
        moved = less_zero(expr)
        if moved:
            return self._less(*moved)
        expr = _without_division(expr)
        args = [self.value(a) for a in expr.args]
        return self._shared((expr.fn, expr.dtype, *map(id, args)), lambda: apply(self.f, expr, args))

    def _less(self, byte: Apply, zero: Zero) -> ir.Value:
        """An unsigned byte less an integer, as a float: subtracted as integers, which more units do."""
        x = self.value(byte.args[0])
        wide = self.f.b.zext(x, vector(I32, self.lanes))
        return self.f.b.sitofp(self.f.b.sub(wide, zero_vector(self.f, wide.type, zero)), vector(FLOAT, self.lanes))

    def _shared(self, key: tuple, make: Callable[[], ir.Value]) -> ir.Value:
        if key not in self.by_content:
            self.by_content[key] = make()
        return self.by_content[key]


def _without_division(expr: Apply) -> Apply:
    """f(x / c) as f(x · (1/c)) where f makes no relative error larger: a division takes as long as ten operations."""
    x = expr.args[0]
    if expr.fn not in CONTRACTING or x.dtype != np.float32 or not isinstance(x, Apply) or x.fn != "div":
        return expr
    by = x.args[1]
    if not isinstance(by, Const) or not 2.0**-100 < abs(by.value) < 2.0**100:
        return expr
    return Apply(expr.dtype, expr.fn, (Apply(x.dtype, "mul", (x.args[0], Const(x.dtype, 1 / by.value))),))


def constant(expr: Const, lanes: int) -> ir.Constant:
    """A constant of an expression in every lane."""
    value = float(expr.value) if is_floating(expr.dtype) else int(expr.value)
    return fill(vector(register_type(expr.dtype), lanes), value)


def apply(f: FunctionEmitter, expr: Apply, args: Sequence[ir.Value]) -> ir.Value:
    """One function applied to register values; `expr.args` tell their dtypes."""
    dtype = expr.args[0].dtype
    if expr.fn == "cast":
        return convert(f, args[0], dtype, expr.dtype)
    if expr.fn == "where":
        return f.b.select(*args)
    if expr.fn == "pow":
        return _power(f, expr, args)
    if expr.fn in COMPARE:
        return compare(f, COMPARE[expr.fn], dtype, *args)
    if expr.fn in TEST:
        return _test(f, expr.fn, dtype, args[0])
    if expr.fn in ("max", "min"):
        return extreme(f, expr.fn, dtype, args[0], args[1], expr.args)
    if is_floating(dtype):
        return _float(f, expr.fn, args)
    return integers.apply(f, expr.fn, dtype, args)


def extreme(
    f: FunctionEmitter,
    which: str,
    dtype: np.dtype,
    x: ir.Value,
    y: ir.Value,
    nodes: Sequence[Expr | None] = (None, None),
) -> ir.Value:
    """max or min; of floats, NaN where either is. `nodes` may show an operand to be a constant other than NaN."""
    relation = ">" if which == "max" else "<"
    if is_floating(dtype) and isinstance(nodes[1], Const | OpenConst):
        x, y, nodes = y, x, (nodes[1], nodes[0])
    # A false comparison gives y, so that a NaN in y comes through; this is one machine instruction.
    result = f.b.select(compare(f, relation, dtype, x, y), x, y)
    known = nodes[0]
    number = isinstance(known, OpenConst) or (isinstance(known, Const) and known.value == known.value)
    if number or not is_floating(dtype):
        return result
    return f.b.select(f.b.fcmp_unordered("uno", x, x), x, result)


def _test(f: FunctionEmitter, fn: str, dtype: np.dtype, x: ir.Value) -> ir.Value:
    if not is_floating(dtype):
        return fill(vector(I1, lanes_of(x)), 0)
    if fn == "isnan":
        return f.b.fcmp_unordered("uno", x, x)
    size = f.math("fabs", x) if fn == "isinf" else x
    return f.b.fcmp_ordered("==", size, fill(x.type, float("-inf" if fn == "isneginf" else "inf")))


# ---- floating point


def _float(f: FunctionEmitter, fn: str, args: Sequence[ir.Value]) -> ir.Value:
    x = args[0]
    if fn in ARITHMETIC:
        return getattr(f.b, ARITHMETIC[fn])(*args)
    if fn in INTRINSIC:
        return f.math(INTRINSIC[fn], x)
    single = (x.type.element if lanes_of(x) > 1 else x.type) == FLOAT
    if fn in VECTORIZED and single:
        return VECTORIZED[fn](f, x)
    if fn in SPECIAL:
        return SPECIAL[fn](f, *args)
    if fn in LIBM:
        return libm(f, fn, *args)
    raise ValueError(f"{fn} is not defined for floating point")


def _reciprocal(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    return f.b.fdiv(fill(x.type, 1.0), x)


def _sign(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    zero = fill(x.type, 0.0)
    negative = f.b.select(f.b.fcmp_ordered("<", x, zero), fill(x.type, -1.0), x)
    return f.b.select(f.b.fcmp_ordered(">", x, zero), fill(x.type, 1.0), negative)


def _modulo(f: FunctionEmitter, x: ir.Value, y: ir.Value) -> ir.Value:
    """The remainder with the sign of the divisor (Python's %)."""
    rest, zero = libm(f, "fmod", x, y), fill(x.type, 0.0)
    opposite = f.b.fcmp_ordered("<", f.b.fmul(_sign(f, rest), _sign(f, y)), zero)
    return f.b.select(opposite, f.b.fadd(rest, y), rest)


def _sigmoid(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    return _reciprocal(f, f.b.fadd(fill(x.type, 1.0), libm(f, "exp", f.b.fneg(x))))


ARITHMETIC = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "neg": "fneg"}
SPECIAL: dict[str, Callable[..., ir.Value]] = {
    "reciprocal": _reciprocal,
    "sign": _sign,
    "mod": _modulo,
    "sigmoid": _sigmoid,
}


# ---- powers


def _power(f: FunctionEmitter, expr: Apply, args: Sequence[ir.Value]) -> ir.Value:
    """The result has the base's type."""
    base, exponent = expr.args
    known = exponent.value if isinstance(exponent, Const) else None
    if known in (1, 2, 3):
        return _small_power(f, base.dtype, args[0], int(known))
    if known == 0.5 and is_floating(base.dtype):
        return f.math("sqrt", args[0])
    if not is_floating(base.dtype) and not is_floating(exponent.dtype):
        return integers.power(f, base.dtype, exponent.dtype, *args)
    single = is_floating(base.dtype) and base.dtype.itemsize < 8 and exponent.dtype.itemsize <= 4
    work = np.dtype(np.float32 if single else np.float64)
    x, y = convert(f, args[0], base.dtype, work), convert(f, args[1], exponent.dtype, work)
    return _resize(f, libm(f, "pow", x, y), base.dtype, work)


def _resize(f: FunctionEmitter, value: ir.Value, dtype: np.dtype, work: np.dtype) -> ir.Value:
    """From the type of the computation to the register type of `dtype`, without rounding to two bytes."""
    return convert(f, value, work, computed_type(dtype))


def _small_power(f: FunctionEmitter, dtype: np.dtype, x: ir.Value, exponent: int) -> ir.Value:
    times = f.b.fmul if is_floating(dtype) else f.b.mul
    result = x
    for _ in range(exponent - 1):
        result = times(result, x)
    return result
