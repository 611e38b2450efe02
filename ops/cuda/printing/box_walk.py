"""Text of a kernel's walk over its box (walk.cuh), and of where its operands' elements lie."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brickrt.ops.cuda.operand import VECTOR, Operand
from brickrt.ops.cuda.printing.traits import bool_text
from brickrt.ops.cuda.printing.types import ctype

HEADER = "walk.cuh"
INT_LIMIT = 2**31
BYTES_UNDER_WAY = 32  # per thread and operand, at most: enough that few resident blocks keep the memory busy
_RAW = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True)
class WalkedOperand:
    """Elements that a kernel reads by the output's index.

    `type` is their C++ type; `strides` are per dimension of the output, 0 where elements repeat; `align` is as in
    `Operand`; `shift` elements are added to the address.
    """

    type: str
    itemsize: int
    strides: tuple[int, ...]
    align: int
    shift: int = 0


def source_of(operand: Operand, out: Operand) -> WalkedOperand:
    """An operand that broadcasts to the output."""
    strides = operand.broadcast_strides(out.rank)
    return WalkedOperand(ctype(operand.dtype), operand.dtype.itemsize, strides, operand.align)


def bits_ctype(dtype: np.dtype) -> str:
    """The unsigned C++ type of the same size, for kernels that only move elements."""
    return ctype(np.dtype(_RAW[dtype.itemsize]))


@dataclass(frozen=True)
class BoxWalk:
    """A walk over boxes of `out`, reading `sources`; dimensions in `apart` must not be joined with others."""

    out: Operand
    sources: tuple[WalkedOperand, ...]
    apart: frozenset[int] = frozenset()

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """The dimensions of more than one element, outermost in memory first."""
        long = [d for d, e in enumerate(self.out.shape) if e > 1]
        return tuple(sorted(long, key=lambda d: (-self.out.strides[d], d)))

    @property
    def inner(self) -> int | None:
        """The dimension that vectors run along, innermost in memory; None where the output has one element."""
        return self.dims[-1] if self.dims else None

    @cached_property
    def joins(self) -> int:
        """A bit mask; bit k says that dims[k] may be joined with dims[k - 1]: no operand has a gap between them."""
        if self.out.type.size >= INT_LIMIT:
            return 0
        return sum(1 << k for k in range(1, len(self.dims)) if self._joins(self.dims[k - 1], self.dims[k]))

    def _joins(self, before: int, dim: int) -> bool:
        lie = (self.out.strides, *(s.strides for s in self.sources))
        near = all(s[before] == s[dim] * self.out.shape[dim] for s in lie)
        return near and not {before, dim} & self.apart

    @property
    def vector(self) -> int:
        """Elements per item: as many of the widest type as a load takes, if the output's rows are aligned for it."""
        size = self.out.dtype.itemsize
        if self.inner is None or self.out.strides[self.inner] != 1:
            return 1
        widest = max([size, *(s.itemsize for s in self.sources if self.stride(s) == 1)])
        return max(1, min(VECTOR // widest, self.row_align(self.out.strides, size, self.out.align) // size))

    def unroll(self, vector: int) -> int:
        """Items of a thread whose loads are issued before the first result is stored."""
        widest = max([self.out.dtype.itemsize, *(s.itemsize for s in self.sources)]) * vector
        return max(1, min(2 if len(self.sources) > 2 else 4, BYTES_UNDER_WAY // widest))

    def stride(self, source: WalkedOperand) -> int:
        """Elements of the source from one element of a row to the next."""
        return 0 if self.inner is None else source.strides[self.inner]

    def row_align(self, strides: Sequence[int], size: int, align: int) -> int:
        """A power of two that divides the byte addresses of all rows' beginnings."""
        return math.gcd(align, *(strides[d] * size for d in self.dims[:-1]))

    def wide(self, source: WalkedOperand, vector: int) -> bool:
        """Whether the elements of a vector can be loaded by a single instruction."""
        align = math.gcd(self.row_align(source.strides, source.itemsize, source.align), source.shift * source.itemsize)
        return vector > 1 and self.stride(source) == 1 and align % (vector * source.itemsize) == 0

    def items(self, vector: int) -> str:
        """The C++ type of a walk in vectors."""
        return f"brick::Items<{self.box}, {vector}>"

    @property
    def box(self) -> str:
        """The template arguments that describe the box."""
        dims, extents = (", ".join(map(str, v)) for v in (self.dims, [self.out.shape[d] for d in self.dims]))
        return f"{self.out.rank}, brick::Ints<{dims}>, brick::Ints<{extents}>, {self.joins}u"

    def tiles(self, across: int, a: int, b: int) -> str:
        """The C++ type of a walk in tiles of `a` elements along the innermost dimension, `b` along dims[across]."""
        return f"brick::Tiles<{self.box}, {across}, {a}, {b}>"

    def index(self, dim: int, place: str) -> str:
        """The index along a dimension at an item whose place is the variable `place`."""
        if dim not in self.dims:
            return "0"
        return f"{place}.k" if dim == self.inner else f"{place}.i[{self.dims.index(dim)}]"

    def offset(self, strides: Sequence[int], at: str, shift: int = 0, skip: Collection[int] = ()) -> str:
        """Elements from the virtual origin to the row at the indices `at`, leaving out the dimensions in `skip`."""
        return self._sum(strides, at, shift, [d for d in self.dims[:-1] if d not in skip])

    def corner(self, strides: Sequence[int], at: str, shift: int = 0) -> str:
        """Elements from the virtual origin to the element at the indices `at`, the innermost included."""
        return self._sum(strides, at, shift, self.dims)

    def _sum(self, strides: Sequence[int], at: str, shift: int, dims: Sequence[int]) -> str:
        terms = [f"{at}[{self.dims.index(d)}] * {offset_literal(strides[d])}" for d in dims if strides[d]]
        return " + ".join([*terms, *([offset_literal(shift)] if shift else [])]) or "0"

    def read(self, source: WalkedOperand, vector: int, pointer: str, place: str) -> str:
        """The elements of an item, as a `brick::Vector`."""
        row = f"{pointer} + ({self.offset(source.strides, f'{place}.i', source.shift)})"
        if self.stride(source) == 0:
            return f"brick::read_same<{vector}>({row}, {place}.k, w.end)"
        return self.read_row(source, vector, row, f"{place}.k", "w.begin", "w.end")

    def read_row(self, source: WalkedOperand, vector: int, row: str, *within: str) -> str:
        """The elements of an item, out of the row at `row`.

        `within` are the item's k, the range that is read, and what stands for elements outside of it.
        """
        if self.stride(source) == 1:
            wide = bool_text(self.wide(source, vector))
            return f"brick::read<{wide}, {vector}>({row}, {', '.join(within)})"
        return f"brick::read_apart<{vector}>({row}, {offset_literal(self.stride(source))}, {', '.join(within)})"

    def loop(
        self,
        vector: int,
        unroll: int,
        loads: Sequence[tuple[str, str]],
        result: Sequence[str],
        cut: str = "",
    ) -> list[str]:
        """The statements of a whole walk, with `unroll` items of a thread in flight.

        `loads` are pairs of a declaration (of a name that ends in [u]) and the statement that fills it; `result`
        declares the Vector `r` that is stored to `y`. Both name the place of the item p[u]. `cut` bounds a dimension.
        """
        items = self.items(vector)
        return [
            f"{items} w(s{cut});",
            "while (w.more()) {",
            f"{items}::Place p[{unroll}];",
            *(declaration.replace("[u]", f"[{unroll}]") + ";" for declaration, _ in loads),
            "#pragma unroll",
            f"for (int u = 0; u < {unroll}; ++u) {{",
            "p[u] = w.take();",
            *(statement for _, statement in loads),
            "}",
            "#pragma unroll",
            f"for (int u = 0; u < {unroll}; ++u) {{",
            *result,
            self.write(vector, "p[u]"),
            "}",
            "}",
        ]

    def write(self, vector: int, place: str) -> str:
        """The statement that stores `r` to `y`."""
        row = f"y + ({self.offset(self.out.strides, f'{place}.i')})"
        stride = 1 if self.inner is None else self.out.strides[self.inner]
        if stride == 1:
            return f"brick::write<{bool_text(vector > 1)}>({row}, {place}.k, w.begin, w.end, r);"
        return f"brick::write_apart({row}, {offset_literal(stride)}, {place}.k, w.begin, w.end, r);"


def offset_literal(value: int) -> str:
    """A stride or offset as a 64-bit literal: its product with an index is one instruction, and cannot overflow."""
    return f"{value}ll"
