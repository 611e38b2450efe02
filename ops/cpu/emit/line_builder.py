"""llvmlite's builder, but what kernels are made of is a line of text as soon as it is asked for.

llvmlite makes objects of an instruction, checks its operands and prints it in the end, for many microseconds each. Here
lines are checked by LLVM's parser alone, which names the operand whose type does not fit. What is seldom asked for is
llvmlite's still, in the same blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache

from llvmlite import ir

I1, VOID = ir.IntType(1), ir.VoidType()
ORDER = {"<": "lt", ">": "gt", "<=": "le", ">=": "ge"}
EQUAL = {"==": "eq", "!=": "ne"}
vector_type = cache(ir.VectorType)


class Line(ir.Value):
    """An instruction in its block, as `text`; operands that are its value are written as `get_reference` says, with
    their type as `operand` says."""

    __slots__ = ("_name", "operand", "parent", "text", "type")

    def __init__(self, parent: ir.Block, kind: ir.Type, name: str, text: str) -> None:
        self.parent, self.type, self._name, self.text, self.operand = parent, kind, name, text, f"{kind} {name}"

    def get_reference(self) -> str:
        """The name of its value."""
        return self._name

    def __str__(self) -> str:
        return self.text


class Phi(Line):
    """A value by the block that its own is entered from, which may be known after lines that take it."""

    __slots__ = ("incomings",)

    def __init__(self, parent: ir.Block, kind: ir.Type, name: str) -> None:
        super().__init__(parent, kind, name, "")
        self.incomings: list[tuple[ir.Value, ir.Block]] = []

    def add_incoming(self, value: ir.Value, block: ir.Block) -> None:
        """It is `value` where its block is entered from `block`."""
        self.incomings.append((value, block))

    def __str__(self) -> str:
        ways = ", ".join(f"[{value.get_reference()}, {block.get_reference()}]" for value, block in self.incomings)
        return f"{self._name} = phi {self.type} {ways}"


def insert_phi(block: ir.Block, kind: ir.Type) -> Phi:
    """A phi behind those that a block begins with: code that follows keeps the order in which they are made."""
    lines = block.instructions
    at = next((k for k, line in enumerate(lines) if not isinstance(line, Phi)), len(lines))
    phi = Phi(block, kind, f"%phi{at}.{block.name}")
    lines.insert(at, phi)
    return phi


def typed(x: ir.Value) -> str:
    """A value as operands are written whose type is not known from the instruction. A constant is printed so, and keeps
    the text."""
    if isinstance(x, Line):
        return x.operand
    return str(x) if isinstance(x, ir.Constant) else f"{x.type} {x.get_reference()}"


def module_text(module: ir.Module) -> str:
    """What `str` gives, or as good, for a module whose functions have almost nothing but lines in them."""
    parts = [f'target triple = "{module.triple}"\n', f'target datalayout = "{module.data_layout}"\n']
    for known in module.globals.values():
        if not isinstance(known, ir.Function) or known.is_declaration:
            parts.append(f"{known}\n")
            continue
        known.descr_prototype(parts)
        parts.append("{\n")
        for block in known.blocks:
            lines = [line.text if type(line) is Line else str(line) for line in block.instructions]
            parts += (f"{block.get_reference()[1:]}:\n", "\n".join(lines), "\n")
        parts.append("}\n")
    return "".join(parts)


class LineBuilder(ir.IRBuilder):
    """The one builder of its kind in a function, whose values it counts. A method's `name` is there as llvmlite's own
    methods give it, and makes no difference."""

    def __init__(self, block: ir.Block) -> None:
        super().__init__(block)
        self._numbers = itertools.count()

    def line(self, text: str, kind: ir.Type) -> Line:
        """Emits the operation `text`, whose result is of type `kind`."""
        name = f"%v{next(self._numbers)}"
        line = Line(self._block, kind, name, f"{name} = {text}")
        self._block.instructions.insert(self._anchor, line)
        self._anchor += 1
        return line

    def computed(self, text: str, kind: ir.Type) -> Line:
        """As `line`, for what gives the same wherever it stands."""
        return self.line(text, kind)

    def _put(self, line: Line) -> Line:
        self._block.instructions.insert(self._anchor, line)
        self._anchor += 1
        return line

    def _done(self, text: str) -> Line:
        return self._put(Line(self._block, VOID, "", text))

    # ---- control flow

    def phi(self, typ: ir.Type, name: str = "", flags: Sequence[str] = ()) -> Phi:
        """A phi, behind those that the current block begins with."""
        self._anchor += 1
        return insert_phi(self._block, typ)

    def branch(self, target: ir.Block) -> Line:
        """Goes to a block."""
        return self._end(f"br label {target.get_reference()}")

    def cbranch(self, cond: ir.Value, truebr: ir.Block, falsebr: ir.Block) -> Line:
        """Goes to one of two blocks."""
        ways = f"label {truebr.get_reference()}, label {falsebr.get_reference()}"
        return self._end(f"br {typed(cond)}, {ways}")

    def _end(self, text: str) -> Line:
        assert not self._block.is_terminated
        self._block.terminator = self._done(text)
        return self._block.terminator

    def call(self, fn: ir.Value, args: Sequence[ir.Value], *more: object, **options: object) -> ir.Value:
        """Calls a function, or what is at the address of one."""
        kind = fn.ftype if isinstance(fn, ir.Function) else getattr(fn.type, "pointee", None)
        if more or options or not isinstance(kind, ir.FunctionType):
            return super().call(fn, args, *more, **options)
        text = f"call {kind.return_type} {fn.get_reference()}({', '.join(map(typed, args))})"
        return self._done(text) if kind.return_type == VOID else self.line(text, kind.return_type)

    # ---- comparisons

    def icmp_signed(self, cmpop: str, lhs: ir.Value, rhs: ir.Value, name: str = "") -> ir.Value:
        """Whether signed integers are equal, or in order."""
        return self.computed(*_compared(f"icmp {EQUAL.get(cmpop) or 's' + ORDER[cmpop]}", lhs, rhs))

    def icmp_unsigned(self, cmpop: str, lhs: ir.Value, rhs: ir.Value, name: str = "") -> ir.Value:
        """Whether unsigned integers are equal, or in order."""
        return self.computed(*_compared(f"icmp {EQUAL.get(cmpop) or 'u' + ORDER[cmpop]}", lhs, rhs))

    def fcmp_ordered(
        self, cmpop: str, lhs: ir.Value, rhs: ir.Value, name: str = "", flags: Sequence[str] = ()
    ) -> ir.Value:
        """Whether floating-point values are equal, or in order: never where one is NaN."""
        return self.line(*_compared(f"fcmp {_float_order('o', cmpop, flags)}", lhs, rhs))

    def fcmp_unordered(
        self, cmpop: str, lhs: ir.Value, rhs: ir.Value, name: str = "", flags: Sequence[str] = ()
    ) -> ir.Value:
        """Whether floating-point values are equal, or in order: always where one is NaN."""
        return self.line(*_compared(f"fcmp {_float_order('u', cmpop, flags)}", lhs, rhs))

    def select(
        self, cond: ir.Value, lhs: ir.Value, rhs: ir.Value, name: str = "", flags: Sequence[str] = ()
    ) -> ir.Value:
        """One of two values, by a condition."""
        return self.computed(f"{_flagged('select', flags)} {typed(cond)}, {typed(lhs)}, {typed(rhs)}", lhs.type)

    def fneg(self, arg: ir.Value, name: str = "", flags: Sequence[str] = ()) -> ir.Value:
        """The value with the other sign."""
        return self.line(f"{_flagged('fneg', flags)} {typed(arg)}", arg.type)

    # ---- memory

    def load(self, ptr: ir.Value, name: str = "", align: int | None = None, typ: ir.Type | None = None) -> ir.Value:
        """The value of type `typ` at an address."""
        if typ is None:
            return super().load(ptr, name, align)
        return self.line(_aligned(f"load {typ}, {typed(ptr)}", align), typ)

    def store(self, value: ir.Value, ptr: ir.Value, align: int | None = None) -> ir.Value:
        """Writes a value to an address."""
        return self._done(_aligned(f"store {typed(value)}, {typed(ptr)}", align))

    def gep(
        self,
        ptr: ir.Value,
        indices: Sequence[ir.Value],
        inbounds: bool = False,
        name: str = "",
        source_etype: ir.Type | None = None,
    ) -> ir.Value:
        """The address of an element behind `ptr`."""
        if source_etype is None:
            return super().gep(ptr, indices, inbounds, name)
        word = "getelementptr inbounds" if inbounds else "getelementptr"
        at = typed(indices[0]) if len(indices) == 1 else ", ".join(map(typed, indices))
        return self.computed(f"{word} {source_etype}, {typed(ptr)}, {at}", ptr.type)

    # ---- vectors

    def extract_element(self, vector: ir.Value, idx: ir.Value, name: str = "") -> ir.Value:
        """One lane."""
        return self.line(f"extractelement {typed(vector)}, {typed(idx)}", vector.type.element)

    def insert_element(self, vector: ir.Value, value: ir.Value, idx: ir.Value, name: str = "") -> ir.Value:
        """The vector with another value in one lane."""
        return self.line(f"insertelement {typed(vector)}, {typed(value)}, {typed(idx)}", vector.type)

    def shuffle_vector(self, vector1: ir.Value, vector2: ir.Value, mask: ir.Constant, name: str = "") -> ir.Value:
        """Lanes of two vectors, as the constant `mask` has them."""
        text = f"shufflevector {typed(vector1)}, {typed(vector2)}, {typed(mask)}"
        return self.computed(text, vector_type(vector1.type.element, mask.type.count))


def _compared(words: str, x: ir.Value, y: ir.Value) -> tuple[str, ir.Type]:
    kind = vector_type(I1, x.type.count) if isinstance(x.type, ir.VectorType) else I1
    return f"{words} {typed(x)}, {y.get_reference()}", kind


def _float_order(prefix: str, cmpop: str, flags: Sequence[str]) -> str:
    word = EQUAL.get(cmpop) or ORDER.get(cmpop)
    return " ".join((*flags, prefix + word if word else cmpop))


def _flagged(word: str, flags: Sequence[str]) -> str:
    return " ".join((word, *flags)) if flags else word


def _aligned(text: str, align: int | None) -> str:
    return text if align is None else f"{text}, align {align}"


def _binary(word: str, how: str) -> Callable[..., ir.Value]:
    """A method for an instruction on two values of one type, which its result has too."""

    def method(self: LineBuilder, lhs: ir.Value, rhs: ir.Value, name: str = "", flags: Sequence[str] = ()) -> ir.Value:
        words = f"{word} {' '.join(flags)}" if flags else word
        return getattr(self, how)(f"{words} {typed(lhs)}, {rhs.get_reference()}", lhs.type)

    return method


def _cast(word: str, how: str) -> Callable[..., ir.Value]:
    """A method for an instruction that takes a value to another type."""

    def method(self: LineBuilder, value: ir.Value, typ: ir.Type, name: str = "") -> ir.Value:
        return value if value.type == typ else getattr(self, how)(f"{word} {typed(value)} to {typ}", typ)

    return method


BINARY = {
    "computed": ("add", "sub", "mul", "sdiv", "srem", "ashr", "and_", "or_"),
    "line": ("udiv", "urem", "shl", "lshr", "xor", "fadd", "fsub", "fmul", "fdiv"),
}
CASTS = {
    "computed": ("zext", "trunc", "bitcast"),
    "line": ("sext", "fptrunc", "fpext", "fptoui", "uitofp", "fptosi", "sitofp", "ptrtoint", "inttoptr"),
}
for _make, _all in ((_binary, BINARY), (_cast, CASTS)):
    for _how, _names in _all.items():
        for _name in _names:
            setattr(LineBuilder, _name, _make(_name.rstrip("_"), _how))
