"""Prints expressions as C++ on scalars; half types are computed in float, all others in their own type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from brickrt.ops.cuda.printing.types import compute_ctype, ctype, is_half
from brickrt.ops.definitions.elementwise_functions import FUNCTIONS, WHOLE
from brickrt.ops.expr import BOOL, COMPARE, TEST, Apply, Arg, Const, Expr, distinct
from brickrt.ops.types import is_floating

HEADER = "math.cuh"

OPERATORS = {
    "f": {"neg": "-{0}", "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}"},
    "i": {"bitnot": "~{0}", "bitand": "{0} & {1}", "bitor": "{0} | {1}", "bitxor": "{0} ^ {1}"},
    "b": {
        **dict.fromkeys(("not", "bitnot"), "!{0}"),
        **dict.fromkeys(("and", "bitand", "min", "mul"), "{0} && {1}"),
        **dict.fromkeys(("or", "bitor", "max", "add"), "{0} || {1}"),
        **dict.fromkeys(("xor", "bitxor"), "{0} != {1}"),
        "abs": "{0}",
    },
}
EFFORT = {name: function.gpu_effort for name, function in FUNCTIONS.items()}


class Printed(NamedTuple):
    """Statements, one per line, each with its semicolon, and the expression that has the value after them."""

    statements: str
    value: str


def print_expr(expr: Expr, operands: Sequence[str], prefix: str = "e") -> Printed:
    """The expression as C++, of type `compute_ctype(expr.dtype)`: half types are not rounded yet.

    `operands[k]` is C++ text of type `compute_ctype` that stands for `Arg(k)`, best a name; names of temporaries begin
    with `prefix`. Needs math.cuh. Equal subexpressions are computed once; nothing traps.
    """
    printer = _Printer(operands, prefix)
    value = printer.value(expr)
    return Printed("\n".join(printer.lines), value)


def effort(expr: Expr) -> int:
    """Roughly the machine operations of an expression per element."""
    return sum(EFFORT.get(e.fn, 1) for e in distinct(expr) if isinstance(e, Apply))


class _Printer:
    """The state of printing one expression: names by node, and by text, so that equal values get one name."""

    def __init__(self, operands: Sequence[str], prefix: str) -> None:
        self.operands, self.prefix = operands, prefix
        self.lines: list[str] = []
        self.by_node: dict[int, str] = {}
        self.by_text: dict[tuple[str, str], str] = {}

    def value(self, expr: Expr) -> str:
        """A name or literal for the value of a node, after the statements it needs."""
        if id(expr) not in self.by_node:
            self.by_node[id(expr)] = self._print(expr)
        return self.by_node[id(expr)]

    def _print(self, expr: Expr) -> str:
        if isinstance(expr, Arg):
            return self.operands[expr.index]
        if isinstance(expr, Const):
            return literal(expr.value, expr.dtype)
        if not isinstance(expr, Apply):
            raise ValueError(f"expression node {type(expr).__name__} cannot be printed in C++")
        kind, text = compute_ctype(expr.dtype), _apply(expr, [self.value(a) for a in expr.args])
        if (kind, text) not in self.by_text:
            name = self.by_text[kind, text] = f"{self.prefix}{len(self.lines)}"
            self.lines.append(f"const {kind} {name} = {text};")
        return self.by_text[kind, text]


def literal(value: float | int | bool, dtype: np.dtype) -> str:
    """A constant, exactly, of the type that `dtype` is computed in; in parentheses where it needs them."""
    kind = compute_ctype(dtype)
    if dtype == BOOL:
        return "true" if value else "false"
    if is_floating(dtype):
        return _float_literal(float(value), kind)
    if dtype.itemsize == 8:
        return f"(({kind}){int(value) % 2**64}ull)"
    return f"(({kind}){int(value)})"


def _float_literal(value: float, kind: str) -> str:
    if math.isnan(value):
        return f"brick::math::nan<{kind}>()"
    if math.isinf(value):
        return f"{'(-' if value < 0 else '('}brick::math::infinity<{kind}>())"
    text = value.hex() + ("f" if kind == "float" else "")
    return f"({text})" if text.startswith("-") else text


def _apply(expr: Apply, args: Sequence[str]) -> str:
    """One function of operands that are printed already; `expr.args` tell their types."""
    dtype, fn = expr.args[0].dtype, expr.fn
    if fn == "cast":
        return convert(args[0], dtype, expr.dtype)
    if fn == "where":
        return "{} ? {} : {}".format(*args)
    if fn == "pow":
        return _power(expr, args)
    if fn in COMPARE:
        return f"{args[0]} {COMPARE[fn]} {args[1]}"
    if fn in TEST:
        return f"brick::math::{fn}({args[0]})" if is_floating(dtype) else "false"
    return _call(fn, dtype, args)


def _call(fn: str, dtype: np.dtype, args: Sequence[str]) -> str:
    """C++'s operator where it has one, else the function of that name in math.cuh."""
    kind = "f" if is_floating(dtype) else "b" if dtype == BOOL else "i"
    if fn not in FUNCTIONS or kind not in FUNCTIONS[fn].kinds:
        raise ValueError(f"{fn} is not defined for {dtype.name}")
    if kind == "i" and fn in WHOLE:
        return args[0]
    if fn not in OPERATORS[kind]:
        return f"brick::math::{fn}({', '.join(args)})"
    text = OPERATORS[kind][fn].format(*args)
    return f"({ctype(dtype)})({text})" if kind == "i" else text


def convert(value: str, source: np.dtype, target: np.dtype) -> str:
    """A cast as ONNX has it: floats to integers truncate, integers wrap, anything but 0 is true, half types round."""
    if source == target:
        return value
    if target == BOOL:
        return f"{value} != 0"
    if is_half(target):
        return f"(float){ctype(target)}((float){value})"
    if is_floating(source) and not is_floating(target):
        return f"brick::math::to_integer<{ctype(target)}>({value})"
    return f"({ctype(target)}){value}"


def _power(expr: Apply, args: Sequence[str]) -> str:
    """The result has the base's type."""
    base, exponent = (e.dtype for e in expr.args)
    known = expr.args[1].value if isinstance(expr.args[1], Const) else None
    if known in (1, 2, 3):
        return _small_power(base, args[0], int(known))
    if known == 0.5 and is_floating(base):
        return f"brick::math::sqrt({args[0]})"
    if not is_floating(base) and not is_floating(exponent):
        return f"brick::math::int_power({args[0]}, {args[1]})"
    if not is_floating(base):
        return f"brick::math::power_to_integer<{ctype(base)}>({args[0]}, {args[1]})"
    exact = exponent.itemsize <= 4 or (known is not None and float(np.float32(known)) == known)
    work = "float" if base.itemsize < 8 and exact else "double"
    return f"({compute_ctype(base)})brick::math::pow(({work}){args[0]}, ({work}){args[1]})"


def _small_power(dtype: np.dtype, x: str, exponent: int) -> str:
    text = x
    for _ in range(exponent - 1):
        text = f"({text} * {x})" if is_floating(dtype) else _call("mul", dtype, [text, x])
    return text
