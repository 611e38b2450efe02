"""Rows: trailing dimensions of an output that a kernel walks as one loop, because everything it touches allows that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.operands.operand_access import Access, access
from brickrt.ops.types import Boxes


def row_dim(out: Operand) -> int:
    """The innermost dimension that moves: of a plain output the last of extent > 1, of a blocked one a spatial one."""
    lowest = 2 if out.block > 1 else 0
    moving = [d for d in range(lowest, len(out.shape)) if out.shape[d] > 1]
    return moving[-1] if moving else len(out.shape) - 1


def joinable(out: Operand, operands: Sequence[Access]) -> int:
    """The first dimension that could join the row if boxes cover the following ones.

    Dimensions join where one step of the outer equals a whole sweep of the inner, in the output and in all operands.
    """
    first = row_dim(out)
    every = [access(out, out), *operands]
    lowest = 2 if any(a.block > 1 for a in every) else 0
    inner = first
    for d in range(first - 1, lowest - 1, -1):
        if out.shape[d] != 1:
            if any(a.strides[d] != a.strides[inner] * out.shape[inner] for a in every):
                break
            inner = d
        first = d
    return first


def row_classes(boxes: Boxes, out: Operand, lowest: int) -> tuple[np.ndarray, list[tuple[int, ...]]]:
    """Per box the first dimension of its row, as the number of a class; `lowest` is what `joinable` allows."""
    last = row_dim(out)
    first = np.full(len(boxes), max(last, 0))
    whole = np.ones(len(boxes), bool)
    for d in range(last, lowest, -1):
        whole &= (boxes.lo[:, d] == 0) & (boxes.hi[:, d] == out.shape[d])
        first[whole] = d - 1
    values, which = np.unique(first, return_inverse=True)
    return which, [(int(v),) for v in values]


@dataclass(frozen=True)
class RowShape:
    """A row covers dimensions `first` and all after it; `dim` is the innermost one that moves."""

    out: Operand
    first: int
    dim: int
    lanes: int

    @staticmethod
    def of(out: Operand, shape_class: Sequence[int], isa: Isa) -> RowShape:
        """The rows of an output in boxes of a class of `row_classes`, (first dimension,)."""
        dim = row_dim(out)
        first = shape_class[0] if shape_class else max(dim, 0)
        adjacent = out.block > 1 or dim < 0 or out.shape[dim] == 1 or out.strides[dim] == 1
        return RowShape(out, first, dim, isa.lanes if adjacent else 1)

    @property
    def step(self) -> int:
        """Row elements per vector."""
        return 1 if self.out.block > 1 else self.lanes

    def channel(self, index: Sequence[Index]) -> Index:
        """First channel of the vectors of a row at `index`, where lanes are channels."""
        return index[1] if self.out.block > 1 else 0

    def stride(self, how: Access) -> int:
        """Elements of an operand between adjacent row elements."""
        return how.strides[self.dim] if how.strides and self.moves else 0

    @property
    def moves(self) -> bool:
        """False for a blocked output without spatial dimensions, whose rows are one pixel."""
        return self.out.block == 1 or self.dim >= 2

    def is_fixed(self, how: Access) -> bool:
        """Whether an operand is the same all along the row."""
        return self.stride(how) == 0

    def moved(self, f: FunctionEmitter, how: Access, start: Index, i: Index) -> Index:
        """The offset `i` row elements from `start`."""
        return f.add(start, f.mul(i, self.stride(how)))

    @contextmanager
    def walk(self, f: FunctionEmitter) -> Iterator[tuple[list[Index], Index]]:
        """Loops over the rows of the kernel's box: the index of a row's first element, and the row's length.

        The body runs for no empty row.
        """
        rank, block = len(self.out.shape), self.out.block
        bounds: list[tuple[Index, Index]] = [f.box(d) for d in range(rank)]
        row_from = max(self.first, 2) if block > 1 else self.first
        length: Index = 1
        for lo, hi in bounds[row_from:]:
            length = f.mul(length, f.sub(hi, lo))
        outer = bounds[:row_from]
        if block > 1:
            outer[1] = f.div(outer[1][0], block), f.div(f.add(outer[1][1], block - 1), block)
        with f.when(f.b.icmp_signed(">", f.value(length), f.value(0))), f.loops(outer) as at:
            index = [f.mul(i, block) if d == 1 else i for d, i in enumerate(at)]
            yield [*index, *(lo for lo, _ in bounds[row_from:])], length
