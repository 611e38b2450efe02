"""PTX as C++: a function for each function, its registers as locals, its jumps as gotos."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.support.ptx.operations import SPECIAL, InstructionWords, translate
from tests.support.ptx.parse import Brace, Instruction, Label, PtxFunction, PtxModule, PtxVariable, type_bytes

_REGISTERS = {1: ("u16", "JUNK16"), 2: ("u16", "JUNK16"), 4: ("u32", "JUNK32"), 8: ("u64", "JUNK64")}
_INTEGERS = frozenset(f"{sign}{bits}" for sign in "us" for bits in (8, 16, 32, 64))


def cpp(module: PtxModule) -> str:
    """The text of a library that has, for every entry `NAME(context, ints …)` of the module,

    extern "C" void NAME(int grid, int threads, long long shared, const void* context, int…, int workers)
    """
    shared, places = _shared(module)
    lines = ['#include "warps.hpp"', "namespace ptx {"]
    stored = [v for v in module.variables if v.space in ("global", "const")]
    lines += [*map(_stored, stored), *_known(stored)]
    used = [f for f in module.functions if f.body is not None]
    lines += [f"static void {_name(f.name)}({_parameters(f)});" for f in used]
    for function in used:
        lines += _Translation(function, places).lines()
    lines += ["}  // namespace ptx"]
    for function in used:
        if function.entry:
            lines += _launcher(function, shared)
    return "\n".join(lines) + "\n"


def _name(name: str) -> str:
    """A C++ name of our own for one of PTX's."""
    return "ptx_" + re.sub(r"\W", lambda m: {"%": "r_", "$": "d_", ".": "_"}[m[0]], name)


def _shared(module: PtxModule) -> tuple[int, dict[str, str]]:
    """Bytes of shared memory that the text declares, and where every variable of the module lies, as C++.

    What has no size, the launch's part, comes last and is aligned to no more than is said.
    """
    places = {
        v.name: f"reinterpret_cast<u64>({_name(v.name)})" for v in module.variables if v.space in ("global", "const")
    }
    size = 0
    variables = sorted((v for v in module.variables if v.space == "shared"), key=lambda v: v.count == 0)
    for v in variables:
        align = max(v.align, type_bytes(v.type))
        size += -size % align
        places[v.name] = f"(SHARED_START + {size})"
        size += v.bytes
    return size, places


def _stored(v: PtxVariable) -> str:
    """A variable of the module; its values, bytes or words, those left out being zeros."""
    kind = f"u{8 * type_bytes(v.type)}"
    values = ", ".join(f"({kind}){value}" for value in v.values)
    align = max(v.align, type_bytes(v.type))
    return f"alignas({align}) static {kind} {_name(v.name)}[{max(v.count, 1)}] = {{{values}}};"


def _known(stored: list[PtxVariable]) -> Iterator[str]:
    """Where variables lie, and a last row that is none."""
    address = "reinterpret_cast<u64>({0})".format
    rows = [f"{{{address(n := _name(v.name))}, {address(n)} + sizeof {n}}}, " for v in stored]
    yield f"extern const Range variables[] = {{{''.join(rows)}{{0, 0}}}};"
    yield f"extern const int variable_count = {len(stored)};"


def _parameters(function: PtxFunction) -> str:
    return ", ".join(f"char* {_name(p.name)}" for p in (*function.results, *function.params))


class _Translation:
    """The translation of one function."""

    def __init__(self, function: PtxFunction, places: dict[str, str]) -> None:
        self.function = function
        self.places = dict(places)
        self.kinds = {"%carry": "bool"}  # of registers
        for p in (*function.results, *function.params):
            self.places[p.name] = f"reinterpret_cast<u64>({_name(p.name)})"

    def lines(self) -> list[str]:
        function, body = self.function, list(self.function.body or ())
        lines = [
            f"static void {_name(function.name)}({_parameters(function)}) {{",
            f"bool {_name('%carry')} = true; u64 path = 0;",
        ]
        depth = 0
        jumped_to = {
            t
            for s in body
            if isinstance(s, Instruction) and s.opcode.startswith("br")
            for t in (*s.operands, *s.targets)
        }
        for k, s in enumerate(body):
            if isinstance(s, PtxVariable):
                lines += self.declared(s, depth)
            elif isinstance(s, Brace):
                depth += 1 if s.opens else -1
                lines.append("{" if s.opens else "}")
            elif isinstance(s, Label):
                if s.name in jumped_to:
                    lines.append(f"{_name(s.name)}:;")
            else:
                lines.append(self.guarded(s, k))
        return [*lines, "}"]

    def declared(self, v: PtxVariable, depth: int) -> Iterator[str]:
        """Registers are declared with what nobody wrote in them, unless a jump may pass their declaration."""
        if v.space == "reg":
            names = [f"{v.name}{k}" for k in range(1, v.count)] if v.many else [v.name]
            kind, junk = ("bool", "true") if v.type == "pred" else _REGISTERS[type_bytes(v.type)]
            self.kinds |= dict.fromkeys(names, kind)
            for at in range(0, len(names), 16):
                part = names[at : at + 16]
                yield f"{kind} {', '.join(_name(n) if depth else f'{_name(n)} = {junk}' for n in part)};"
        elif v.space in ("local", "param"):
            yield f"alignas({max(v.align, 8)}) char {_name(v.name)}[{max(v.bytes, 1)}];"
            self.places[v.name] = f"reinterpret_cast<u64>({_name(v.name)})"
            if v.space == "local":
                yield f"memset({_name(v.name)}, 0xff, sizeof {_name(v.name)});"
        else:
            raise ValueError(f"PTX variable in a function: {v}")

    def guarded(self, s: Instruction, k: int) -> str:
        line = self.jump(s) or translate(
            InstructionWords(s, self.read, self.write, self.address, _literal(f"{k}: {s}"))
        )
        if not s.guard:
            return line
        condition = self.read(s.guard, "bool")
        if s.opcode.startswith("br"):
            condition = f"branch(path, {condition})"
        return f"if ({condition}) {{ {line} }}"

    def jump(self, s: Instruction) -> str | None:
        if s.opcode in ("bra", "bra.uni"):
            return f"goto {_name(s.operands[0])};"
        if s.opcode == "brx.idx" and s.targets:
            cases = " ".join(f"case {k}: goto {_name(t)};" for k, t in enumerate(s.targets))
            return f"switch ({self.read(s.operands[0], 'u32')}) {{ {cases} }}"
        if s.opcode in ("ret", "exit") and (s.opcode == "ret" or self.function.entry):
            return "return;"
        if s.opcode in ("call", "call.uni"):
            *results, name, arguments = s.operands if s.operands[-1][0] == "(" else (*s.operands, "()")
            names = [n for part in (*results, arguments) for n in part.strip("()").split(",") if n]
            return f"{_name(name)}({', '.join(map(_name, names))});"
        return None

    def read(self, operand: str, kind: str) -> str:
        """A register, a number, a special register or an address, as a value of a type. Integers are cast and not taken
        through templates: of those, most of what a compiler does would be to unfold them."""
        as_kind = f"({kind})" if kind in _INTEGERS else f"get<{kind}>"
        if operand in self.kinds:
            return _name(operand) if kind in ("bool", self.kinds[operand]) else f"{as_kind}({_name(operand)})"
        if operand[0] == "!":
            return f"!{self.read(operand[1:], kind)}"
        if kind == "bool":
            return {"0": "false", "1": "true", "-1": "true"}[operand]
        if operand in SPECIAL:
            return f"{as_kind}({SPECIAL[operand]})"
        if match := re.fullmatch(r"0([fd])([0-9a-fA-F]+)", operand):
            return f"get<{kind}>((u{32 if match[1] == 'f' else 64})0x{match[2]}ull)"
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", operand):
            return f"{as_kind}({int(operand.rstrip('U'), 0) % 2**64}ull)"
        if operand in self.places:
            return f"{as_kind}((u64){self.places[operand]})"
        raise ValueError(f"PTX operand: {operand}")

    def write(self, operand: str, value: str, kind: str = "") -> str:
        """The value in a register; `kind` is its type, where that is known to be an integer's or a float's."""
        if operand == "_":
            return f"(void)({value});"
        if self.kinds[operand] == "bool" or kind in _INTEGERS:
            return f"{_name(operand)} = {value};"
        return f"put({_name(operand)}, {value});"

    def address(self, operand: str) -> str:
        match = re.fullmatch(r"\[([^+\]]+)(?:\+(-?\w+))?\]", operand)
        if match is None:
            raise ValueError(f"PTX address: {operand}")
        base = match[1]
        kind = "u32" if self.kinds.get(base) == "u32" else "u64"
        return f"{self.read(base, kind)} + {int(match[2] or '0', 0)}"


def _literal(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _launcher(function: PtxFunction, shared: int) -> list[str]:
    """Every thread gets parameters of its own, as if they lay in constant memory."""
    given, held = [], []
    for k, p in enumerate(function.params):
        words = {4: "int", 8: "long long"}.get(p.bytes, "") if p.count == 1 else "const void*"
        if not words:
            raise ValueError(f"PTX entry {function.name}: parameter {p}")
        given.append(f"{words} a{k}, ")
        held.append(f"alignas(16) char p{k}[{p.bytes}]; memcpy(p{k}, {'&' if p.count == 1 else ''}a{k}, {p.bytes});")
    return [
        f'extern "C" void {function.name}(int grid, int threads, long long bytes, {"".join(given)}int workers) {{',
        f"    ptx::run_grid(grid, threads, {function.most_threads}, bytes, {shared}, workers, [=] {{",
        *(f"        {line}" for line in held),
        f"        ptx::{_name(function.name)}({', '.join(f'p{k}' for k in range(len(given)))});",
        "    });",
        "}",
    ]
