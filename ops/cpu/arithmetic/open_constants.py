"""Constants of quantization that a kernel's code does not know: it reads them from its table of sizes, and so is good
for layers of other scales and zero points.

    round(mul(a0, 0.59)) + 133   →   round(mul(a0, ·)) + ·       scale: the bits of a float32;  zero point: an integer
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter, splat_by
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I32
from brickrt.ops.cpu.emit.sizes import Size
from brickrt.ops.expr import Apply, Const, Expr
from brickrt.ops.types import OpenNumber, is_floating

Take = Callable[[int], Any]
Conversion = Callable[[ir.IRBuilder, ir.Value], ir.Value]
FLOAT32 = np.dtype(np.float32)
KNOWN = frozenset({0.0, 255.0, -128.0, 127.0})
"""Integers that stay as they are: the ends of a byte's range, and a zero point that need not be added."""
LEAST_SCALE, LARGEST_SCALE = 2.0**-64, 2.0**16
LARGEST_INTEGER = 255
STAYS_INTEGER = frozenset({"round", "floor", "ceil", "add", "sub", "max", "min", "neg"})


@dataclass(frozen=True)
class OpenConst(Expr):
    """A constant of float32 that lies between `least` and `largest`, the same number wherever `place` is the same.
    `number` stands for the integer that it is, or for the bits of a `scale`."""

    place: int
    number: OpenNumber = field(compare=False)  # told apart by its place
    scale: bool
    least: float
    largest: float

    def integer(self, f: FunctionEmitter, lanes: int = 1) -> ir.Value:
        """The integer that it is, in each of so many lanes: i32."""
        return self._read(f, "integer", lanes, lambda b, word: b.trunc(word, I32))

    def emit(self, f: FunctionEmitter, lanes: int = 1) -> ir.Value:
        """The constant, in each of so many lanes: float."""
        return self._read(f, "constant", lanes, self._converted)

    def _read(self, f: FunctionEmitter, kind: str, lanes: int, convert: Conversion) -> ir.Value:
        """The constant as `convert` emits it. All its lanes are filled where the function begins: in a loop that would
        take as long as to compute with them."""
        assert isinstance(self.number, Size)
        return f.entry_value(
            (kind, self.place, lanes), self.number, lambda b, word: splat_by(b, convert(b, word), lanes)
        )

    def _converted(self, b: ir.IRBuilder, word: ir.Value) -> ir.Value:
        """What a word of the table is as a float."""
        bits = b.trunc(word, I32)
        return b.bitcast(bits, FLOAT) if self.scale else b.sitofp(bits, FLOAT)


def with_open_constants(op: Any, take: Take) -> Any:
    """An operator with what `take` gives in place of the scales and zero points of its expressions."""
    return _Opening(take).opened(op)


class _Opening:
    """Constants of one operator that were opened: equal ones have one place. Subtrees that expressions share stay
    shared, and known by their identity, so each is held."""

    def __init__(self, take: Take) -> None:
        self.take = take
        self.found = dict[tuple[float, bool], OpenConst]()
        self.done = dict[tuple[int, bool], tuple[Expr, Expr]]()

    def opened(self, thing: Any) -> Any:
        """A dataclass whose fields are expressions, or tuples of such dataclasses and expressions."""
        if isinstance(thing, Expr):
            return self.expression(thing)
        if isinstance(thing, tuple):
            return tuple(map(self.opened, thing)) if any(map(_may_hold, thing)) else thing
        if not is_dataclass(thing) or isinstance(thing, type):
            return thing
        held = {e.name: getattr(thing, e.name) for e in fields(thing)}
        held = {name: value for name, value in held.items() if _may_hold(value)}
        return replace(thing, **{name: self.opened(value) for name, value in held.items()}) if held else thing

    def expression(self, expr: Expr, rounded: bool = False) -> Expr:
        """An expression, which is `rounded` to an integer or not; itself where nothing is opened."""
        if not isinstance(expr, Apply):
            return expr
        key = id(expr), rounded
        if key not in self.done:
            self.done[key] = expr, self.applied(expr, rounded)
        return self.done[key][1]

    def applied(self, expr: Apply, rounded: bool) -> Apply:
        """The same of a function's value."""
        args = [self.expression(a, expr.fn == "round") for a in expr.args]
        if len(args) == 2 and expr.dtype == FLOAT32:
            args = [self.argument(expr, k, rounded) or a for k, a in enumerate(args)]
        same = all(new is old for new, old in zip(args, expr.args, strict=True))
        return expr if same else Apply(expr.dtype, expr.fn, tuple(args))

    def argument(self, expr: Apply, k: int, rounded: bool) -> OpenConst | None:
        """What stands for argument `k` of two, None where that is no constant of quantization."""
        value, other = expr.args[k], expr.args[1 - k]
        if not isinstance(value, Const) or isinstance(other, Const):
            return None
        if expr.fn in ("mul", "div") and k == 1 and (rounded or is_integral(other)):
            return self.scale(float(value.value))
        if expr.fn in ("add", "sub", "max", "min") and is_integral(other):
            return self.integer(float(value.value))
        return None

    def scale(self, value: float) -> OpenConst | None:
        """What stands for a scale, None for one that is out of all proportion."""
        if not LEAST_SCALE < value < LARGEST_SCALE:
            return None
        bits = int(np.float32(value).view(np.int32))
        return self.constant(value, True, bits, 0.0, LARGEST_SCALE)

    def integer(self, value: float) -> OpenConst | None:
        """What stands for a zero point, or for the end of a range that is counted from one."""
        if value in KNOWN or not value.is_integer() or abs(value) > LARGEST_INTEGER:
            return None
        ends = (0.0, LARGEST_INTEGER) if value > 0 else (-LARGEST_INTEGER, 0.0)
        return self.constant(value, False, int(value), *ends)

    def constant(self, value: float, scale: bool, number: int, least: float, largest: float) -> OpenConst:
        """The one for a value; of a new value, with the next number."""
        key = value, scale
        if key not in self.found:
            self.found[key] = OpenConst(FLOAT32, len(self.found), self.take(number), scale, least, largest)
        return self.found[key]


def _may_hold(value: Any) -> bool:
    """Whether a field's value is an expression, or holds some."""
    if isinstance(value, tuple):
        return any(map(_may_hold, value))
    return isinstance(value, Expr) or (is_dataclass(value) and not isinstance(value, type))


def is_integral(expr: Expr) -> bool:
    """Whether an expression of float32 is an integer whatever its operands hold: a quantized value."""
    if not isinstance(expr, Apply):
        return isinstance(expr, Const) and float(expr.value).is_integer()
    if expr.fn == "cast":
        source = expr.args[0].dtype
        return not is_floating(source) and source != np.dtype(bool)
    if expr.fn == "round":
        return True
    return expr.fn in STAYS_INTEGER and all(map(is_integral, expr.args))
