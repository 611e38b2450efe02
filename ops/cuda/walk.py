"""Prints how a kernel walks over its box (walk.cuh), and where its operands' elements lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brickrt.ops.cuda.operand import VECTOR, Operand
from brickrt.ops.cuda.types_cuda import ctype

HEADER = "walk.cuh"
INT_LIMIT = 2**31
_RAW = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True)
class Source:
    """Elements that a kernel reads, by index of the output: `type` names them in C++, `strides` are per dimension of
    the output, 0 where they are repeated; `align` as of operands; `shift` elements are added to the address."""

    type: str
    itemsize: int
    strides: tuple[int, ...]
    align: int
    shift: int = 0


def source_of(operand: Operand, out: Operand) -> Source:
    """An operand that broadcasts to the output (NumPy's rules)."""
    missing = out.rank - operand.rank
    strides = (0,) * missing + tuple(0 if e == 1 else s for s, e in zip(operand.strides, operand.shape))
    return Source(ctype(operand.dtype), operand.dtype.itemsize, strides, operand.align)


def raw(dtype: np.dtype) -> str:
    """The unsigned type of the same size, for what only moves elements."""
    return ctype(np.dtype(_RAW[dtype.itemsize]))


@dataclass(frozen=True)
class Walk:
    """Over an output with the elements of `sources`; `apart` are dimensions that must not be joined with others."""

    out: Operand
    sources: tuple[Source, ...]
    apart: frozenset[int] = frozenset()

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """The dimensions of more than one element, outermost in memory first."""
        long = [d for d, e in enumerate(self.out.shape) if e > 1]
        return tuple(sorted(long, key=lambda d: (-self.out.strides[d], d)))

    @property
    def inner(self) -> int | None:
        return self.dims[-1] if self.dims else None

    @cached_property
    def joins(self) -> int:
        """Bit k: dimension dims[k] may be joined with the one before it."""
        if self.out.type.size >= INT_LIMIT:
            return 0
        return sum(1 << k for k in range(1, len(self.dims)) if self._joins(self.dims[k - 1], self.dims[k]))

    def _joins(self, before: int, dim: int) -> bool:
        lie = (self.out.strides, *(s.strides for s in self.sources))
        near = all(s[before] == s[dim] * self.out.shape[dim] for s in lie)
        return near and not {before, dim} & self.apart

    @property
    def vector(self) -> int:
        """Elements per item: of the widest type as many as a load takes, if the output can be stored so."""
        size = self.out.dtype.itemsize
        if self.inner is None or self.out.strides[self.inner] != 1:
            return 1
        widest = max([size, *(s.itemsize for s in self.sources if self.stride(s) == 1)])
        return max(1, min(VECTOR // widest, self.row_align(self.out.strides, size, self.out.align) // size))

    def stride(self, source: Source) -> int:
        """From one element of a row to the next."""
        return 0 if self.inner is None else source.strides[self.inner]

    def row_align(self, strides: Sequence[int], size: int, align: int) -> int:
        """Bytes that divide the addresses of all rows' beginnings."""
        return math.gcd(align, *(strides[d] * size for d in self.dims[:-1]))

    def wide(self, source: Source, vector: int) -> bool:
        """Whether a vector's elements can be loaded at once."""
        align = math.gcd(self.row_align(source.strides, source.itemsize, source.align), source.shift * source.itemsize)
        return vector > 1 and self.stride(source) == 1 and align % (vector * source.itemsize) == 0

    def items(self, vector: int) -> str:
        """The C++ type of the walk."""
        return f"brick::Items<{self.box}, {vector}>"

    @property
    def box(self) -> str:
        dims, extents = (", ".join(map(str, v)) for v in (self.dims, [self.out.shape[d] for d in self.dims]))
        return f"{self.out.rank}, brick::Ints<{dims}>, brick::Ints<{extents}>, {self.joins}u"

    def offset(self, strides: Sequence[int], at: str = "p.i", shift: int = 0, skip: Sequence[int] = ()) -> str:
        """Elements from the virtual origin to the row at the indices `at`; dimensions in `skip` do not count."""
        reach = abs(shift) + sum(abs(strides[d]) * self.out.shape[d] for d in self.dims)
        cast = "" if reach < INT_LIMIT else "(long long)"
        where = [(k, strides[d]) for k, d in enumerate(self.dims[:-1]) if d not in skip and strides[d]]
        terms = [f"{cast}{at}[{k}]" + (f" * {s}" if s != 1 else "") for k, s in where]
        return " + ".join([*terms, *([str(shift) if not cast else f"{shift}ll"] if shift else [])]) or "0"

    def read(self, source: Source, vector: int, pointer: str, place: str = "p") -> str:
        """The elements of an item, as a `brick::Vector`."""
        row = f"{pointer} + ({self.offset(source.strides, f'{place}.i', source.shift)})"
        stride = self.stride(source)
        if stride == 0:
            return f"brick::read_same<{vector}>({row}, {place}.k, w.end)"
        if stride == 1:
            wide = str(self.wide(source, vector)).lower()
            return f"brick::read<{wide}, {vector}>({row}, {place}.k, w.begin, w.end)"
        return f"brick::read_apart<{vector}>({row}, {number(stride)}, {place}.k, w.begin, w.end)"

    def write(self, vector: int, pointer: str, value: str, place: str = "p") -> str:
        row = f"{pointer} + ({self.offset(self.out.strides, f'{place}.i')})"
        stride = 1 if self.inner is None else self.out.strides[self.inner]
        if stride == 1:
            return f"brick::write<{str(vector > 1).lower()}>({row}, {place}.k, w.begin, w.end, {value});"
        return f"brick::write_apart({row}, {number(stride)}, {place}.k, w.begin, w.end, {value});"


def number(value: int) -> str:
    """As C++ text; long where an int could overflow when it is multiplied by an index."""
    return f"{value}ll" if abs(value) >= 2**20 else str(value)


def function(name: str, *lines: str) -> str:
    """A device function of the given body."""
    return f"BRICK_DEVICE void {name}(const brick::Step& s, char* const* at, char* shared) {{\n" + (
        "\n".join(line for line in lines if line) + "\n}\n"
    )


def pointer(name: str, slot: int, kind: str) -> str:
    """Declares a pointer to operand `slot`, 0 being the output."""
    return f"const auto {name} = ({'const ' if slot else ''}{kind}*)at[{slot}];"
