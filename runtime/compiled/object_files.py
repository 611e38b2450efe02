"""Object files of LLVM, ELF for x86-64, joined to one image that can be brought anywhere.

Code is compiled for addresses of 64 bits, so that hardly anything but such addresses is left to fill in.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from brickrt.runtime.compiled.file_header import ImportRecord

X86_64, RELOCATABLE = 62, 1
NOBITS, RELA, SYMTAB = 8, 4, 2
WRITE, ALLOC = 1, 2  # flags of a section
ABSOLUTE, PC32, PLT32, PC64 = 1, 2, 4, 24  # kinds of relocations
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    nbytes: int
    link: int
    info: int
    alignment: int


@dataclass(frozen=True)
class _Symbol:
    name: str
    section: int
    value: int


@dataclass
class LinkedCode:
    """Code for the address 0: `rebase` are byte offsets of addresses that move with it, `symbols` where functions
    begin, `wanted` where addresses of functions outside go."""

    code: bytearray = field(default_factory=bytearray)
    rebase: list[int] = field(default_factory=list)
    symbols: dict[str, int] = field(default_factory=dict)
    wanted: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    @property
    def imports(self) -> tuple[ImportRecord, ...]:
        """What is outside."""
        return tuple(ImportRecord(name, tuple(places)) for name, places in sorted(self.wanted.items()))

    def add(self, image: bytes) -> None:
        """Appends an object file. Raises ValueError for one that is not as LLVM writes them for kernels."""
        sections = _sections(image)
        places = {k: self._place(image, s) for k, s in enumerate(sections) if _is_loaded(s)}
        tables = [s for s in sections if s.kind == SYMTAB]
        symbols = [symbol for table in tables for symbol in _symbols(image, table, sections[table.link])]
        for symbol in symbols:
            if symbol.name and symbol.section in places:
                self.symbols[symbol.name] = places[symbol.section] + symbol.value
        for section in sections:
            if section.kind == RELA and section.info in places:
                self._relocate(image, section, places[section.info], symbols, places)

    def _place(self, image: bytes, section: _Section) -> int:
        """Appends the bytes of a section; gives where."""
        if section.flags & WRITE:
            raise ValueError(f"section {section.name} is written at run time")
        step = max(section.alignment, 64)
        self.code.extend(bytes(-len(self.code) % step))
        at = len(self.code)
        empty = section.kind == NOBITS
        self.code.extend(bytes(section.nbytes) if empty else image[section.offset : section.offset + section.nbytes])
        return at

    def _relocate(
        self, image: bytes, section: _Section, base: int, symbols: list[_Symbol], places: dict[int, int]
    ) -> None:
        """Fills in what the bytes of a section say of symbols."""
        for offset, info, addend in _RELOCATION.iter_unpack(image[section.offset : section.offset + section.nbytes]):
            symbol, kind, at = symbols[info >> 32], info & 0xFFFFFFFF, base + offset
            inside = symbol.section in places
            if kind == ABSOLUTE:
                value = places[symbol.section] + symbol.value + addend if inside else addend
                struct.pack_into("<q", self.code, at, value)
                (self.rebase if inside else self.wanted[symbol.name]).append(at)
            elif inside and kind in (PC32, PLT32, PC64):
                form = "<q" if kind == PC64 else "<i"
                struct.pack_into(form, self.code, at, places[symbol.section] + symbol.value + addend - at)
            else:
                raise ValueError(f"relocation {kind} of '{symbol.name}' is not known")


def link(images: Iterable[bytes]) -> LinkedCode:
    """One image of several object files."""
    linked = LinkedCode()
    for image in images:
        linked.add(image)
    return linked


def _is_loaded(section: _Section) -> bool:
    unwinding = section.name.startswith((".eh_frame", ".note"))  # kernels raise nothing
    return bool(section.flags & ALLOC) and section.kind != RELA and not unwinding


def _sections(image: bytes) -> list[_Section]:
    head = _HEADER.unpack_from(image)
    if head[0][:6] != b"\x7fELF\x02\x01" or head[1] != RELOCATABLE or head[2] != X86_64:
        raise ValueError("is no object file for x86-64")
    rows = [_SECTION.unpack_from(image, head[6] + k * _SECTION.size) for k in range(head[12])]
    names = rows[head[13]]
    return [_Section(_text(image, names[4] + r[0]), r[1], r[2], r[4], r[5], r[6], r[7], r[8]) for r in rows]


def _symbols(image: bytes, table: _Section, names: _Section) -> Iterator[_Symbol]:
    content = image[table.offset : table.offset + table.nbytes]
    for name, _, _, section, value, _ in _SYMBOL.iter_unpack(content):
        yield _Symbol(_text(image, names.offset + name), section, value)


def _text(image: bytes, at: int) -> str:
    return image[at : image.index(b"\0", at)].decode()
