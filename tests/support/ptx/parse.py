"""PTX text as data: variables of a module, functions, and their statements in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class PtxVariable:
    """A variable: `count` elements of a type ("b8", "u32" …) in a state space ("reg", "param", "shared" …).

    `count` is 0 where the text says `[]`; registers `%r<5>` are the variables %r1 … %r4 by the name "%r".
    """

    space: str
    type: str
    name: str
    count: int = 1
    align: int = 0
    values: tuple[int, ...] = ()
    many: bool = False  # registers name1 … name(count - 1)

    @property
    def bytes(self) -> int:
        return self.count * type_bytes(self.type)


@dataclass(frozen=True)
class Label:
    """The place that a jump names."""

    name: str


@dataclass(frozen=True)
class Brace:
    """The beginning or end of a scope."""

    opens: bool


@dataclass(frozen=True)
class Instruction:
    """`@guard opcode operands`; vectors are operands "{a,b}", addresses "[a+4]"."""

    opcode: str
    operands: tuple[str, ...]
    guard: str = ""
    targets: tuple[str, ...] = ()  # of an indirect branch

    def __str__(self) -> str:
        return " ".join((*([f"@{self.guard}"] if self.guard else []), self.opcode, ", ".join(self.operands)))


Statement = PtxVariable | Label | Brace | Instruction


@dataclass(frozen=True)
class PtxFunction:
    """A function with its statements in order; `entry` where the host can launch it."""

    name: str
    entry: bool
    results: tuple[PtxVariable, ...]
    params: tuple[PtxVariable, ...]
    most_threads: int  # 0: any
    body: tuple[Statement, ...] | None  # None: declared alone


@dataclass(frozen=True)
class PtxModule:
    """A whole PTX text."""

    variables: tuple[PtxVariable, ...]
    functions: tuple[PtxFunction, ...]


def type_bytes(name: str) -> int:
    return 1 if name == "pred" else int(name[1:].replace("16x2", "32")) // 8


def parse(text: str) -> PtxModule:
    """Raises ValueError at what it does not know."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^\s*\.(version|target|address_size|file|loc)\b[^\n]*", "", text, flags=re.M)
    variables, functions, at = [], [], 0
    while match := re.compile(r"\s*([^;{]*)([;{])").match(text, at):
        head, at = match[1].strip(), match.end()
        if re.search(r"\.(entry|func)\b", head):
            end = _closing(text, at) if match[2] == "{" else at
            functions.append(_function(head, text[at : end - 1] if match[2] == "{" else None))
            at = end
        else:
            if match[2] == "{":  # the values of a variable
                end = text.index(";", at)
                head, at = head + "{" + text[at:end], end + 1
            variables.append(_variable(head))
    if text[at:].strip():
        raise ValueError(f"PTX ends with: {text[at:].strip()[:80]}")
    return PtxModule(tuple(variables), tuple(functions))


def _closing(text: str, at: int) -> int:
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at


_HEAD = re.compile(
    r"(?:\.(?:visible|weak|extern)\s+)*\.(entry|func)\s*(\([^)]*\))?\s*([\w$]+)\s*(?:\(([^)]*)\))?(.*)", re.S
)
_LIMITS = re.compile(r"\s*\.(noreturn|pragma\s+\"[^\"]*\"|(maxntid|reqntid|minnctapersm|maxnreg)\s+[\d, ]+)")


def _function(head: str, body: str | None) -> PtxFunction:
    match = _HEAD.fullmatch(head)
    if match is None or _LIMITS.sub("", match[5]).strip():
        raise ValueError(f"PTX function: {head}")
    threads = re.search(r"\.(?:maxntid|reqntid)\s+(\d+)", match[5])
    results, params = (
        tuple(_variable(p.strip()) for p in (part or "").strip("() \n").split(",") if p.strip())
        for part in (match[2], match[4])
    )
    statements = None if body is None else tuple(_statements(body))
    return PtxFunction(match[3], match[1] == "entry", results, params, int(threads[1]) if threads else 0, statements)


_VARIABLE = re.compile(
    r"(?:\.(?:visible|weak|extern)\s+)*\.(reg|global|const|shared|local|param)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+"
    r"(?:\.ptr[\s.\w]*?\s+)?([%$\w]+)\s*(<\d+>|\[\d*\])?\s*(?:=\s*(.*))?",
    re.S,
)


def _variable(text: str) -> PtxVariable:
    match = _VARIABLE.fullmatch(text)
    if match is None:
        raise ValueError(f"PTX variable: {text}")
    space, align, kind, name, count, values = match.groups()
    number = 1 if count is None else int(count[1:-1] or 0)
    numbers = tuple(int(v, 0) for v in re.findall(r"[-\w]+", values)) if values else ()
    many = bool(count) and count[0] == "<"
    return PtxVariable(space, kind, name, number, int(align or 0), numbers, many)


_START = re.compile(r"\s*(?:([{}])|([$\w]+):\s*(?:\.branchtargets\s+([^;]*);)?|([^;]+);)")
_TEXT = re.compile(r"(?:@(!?[%\w]+)\s+)?([\w.:]+)\s*(.*)", re.S)


def _statements(body: str) -> Iterator[Statement]:
    at, targets = 0, {}
    while match := _START.match(body, at):
        brace, label, branches, text = match.groups()
        at = match.end()
        if brace:
            yield Brace(brace == "{")
        elif label and branches is not None:
            targets[label] = tuple(_split(branches))
        elif label:
            yield Label(label)
        elif text.startswith("."):
            if not text.startswith(".pragma"):
                yield from (_variable(one) for one in _declarations(text))
        else:
            yield _instruction(text, targets)
    if body[at:].strip():
        raise ValueError(f"PTX: {body[at:].strip()[:80]}")


def _declarations(text: str) -> list[str]:
    """`.reg .b32 a, b` is two."""
    first, *more = text.split(",")
    kind = first.rsplit(None, 1)[0]
    return [first.strip(), *(f"{kind} {name.strip()}" for name in more)]


def _instruction(text: str, targets: dict[str, tuple[str, ...]]) -> Instruction:
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"PTX instruction: {text}")
    guard, opcode, rest = match.groups()
    operands = _split(rest)
    listed = targets.get(operands[-1], ()) if opcode.startswith("brx") else ()
    return Instruction(opcode, tuple(operands), guard or "", listed)


def _split(text: str) -> list[str]:
    """At commas outside of brackets; without white space."""
    return re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,{\[(])+", re.sub(r"\s", "", text))
