"""The operands of a product with constant weights as matrices, however they lie: [rows, K] × [K, columns].

A matrix product has a matrix per batch. A pointwise convolution has one per image: rows are the pixels of a box, K the
channels of the input, columns those of the output. So Strassen's scheme adds pixels of one image, never images.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.index_arithmetic import is_folded
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.products.conv_geometry import joins_rows
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes


@dataclass(frozen=True)
class MatrixView(ABC):
    """`a` times constants gives `out`, in boxes of the class `shape` (see `classes`)."""

    op: Op
    a: Operand
    out: Operand
    shape: tuple[int, ...]

    dim: ClassVar[int]  # the dimension of the output that columns are, and of `a` that K is
    rows_adjacent: ClassVar[bool]  # whether rows lie closer together than vectors of K

    @property
    def depth(self) -> int:
        """K, elements that a product sums over."""
        return self.a.shape[self.dim]

    @property
    def columns(self) -> int:
        """Columns of the output."""
        return self.out.shape[self.dim]

    @property
    def joined(self) -> bool:
        """Whether the pixels of an image are counted along its innermost dimension."""
        return False

    @property
    @abstractmethod
    def rows(self) -> int:
        """Rows of a box in one of its matrices."""

    @staticmethod
    @abstractmethod
    def classes(op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes) -> np.ndarray:
        """Per box what the code takes for constant, [n, …]."""

    @staticmethod
    @abstractmethod
    def matrix(weights: np.ndarray) -> np.ndarray:
        """The weights as [K, columns]."""

    # ---- at run time

    @abstractmethod
    def batches(self, f: FunctionEmitter) -> list[tuple[Index, Index]]:
        """Ranges of the dimensions that number the matrices of a box."""

    @abstractmethod
    def corner(self, f: FunctionEmitter, batch: Sequence[Index]) -> list[Index]:
        """Index in the output of the first row of one of a box's matrices; the column is 0."""

    @abstractmethod
    def index(self, f: FunctionEmitter, corner: Sequence[Index], row: Index, column: Index) -> list[Index]:
        """Index in the output of an element of that matrix."""

    @abstractmethod
    def source(self, f: FunctionEmitter, corner: Sequence[Index]) -> Index:
        """Offset in `a` of the matrix."""

    @abstractmethod
    def row_offset(self, f: FunctionEmitter, row: Index) -> Index:
        """From there to a row."""

    @abstractmethod
    def depth_offset(self, f: FunctionEmitter, k: Index) -> Index:
        """From there to an element of K, of which a vector begins at a multiple of its lanes."""


class MatMulView(MatrixView):
    """[batch…, M, K] × [K, N]; `shape` is (rows,)."""

    dim, rows_adjacent = -1, False

    @property
    def rows(self) -> int:
        """The box's rows."""
        return self.shape[0]

    @staticmethod
    def classes(op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes) -> np.ndarray:
        """The box's rows."""
        return boxes.extents[:, -2:-1]

    @staticmethod
    def matrix(weights: np.ndarray) -> np.ndarray:
        """As they are."""
        return weights

    def batches(self, f: FunctionEmitter) -> list[tuple[Index, Index]]:
        """All dimensions but the last two."""
        return [f.box(d) for d in range(self.out.type.rank - 2)]

    def corner(self, f: FunctionEmitter, batch: Sequence[Index]) -> list[Index]:
        """The box's first row."""
        return [*batch, f.box(self.out.type.rank - 2)[0], 0]

    def index(self, f: FunctionEmitter, corner: Sequence[Index], row: Index, column: Index) -> list[Index]:
        """The row counts from the corner on."""
        return [*corner[:-2], f.add(corner[-2], row), column]

    def source(self, f: FunctionEmitter, corner: Sequence[Index]) -> Index:
        """`a` may broadcast along batch dimensions."""
        batch = self.a.strides[:-2]
        strides = [0 if e == 1 else s for e, s in zip(self.a.shape[:-2], batch, strict=True)]
        missing = [0] * (len(corner) - 2 - len(batch))
        return f.dot(corner[:-1], [*missing, *strides, self.a.strides[-2]])

    def row_offset(self, f: FunctionEmitter, row: Index) -> Index:
        """Rows lie at one stride."""
        return f.mul(row, self.a.strides[-2])

    def depth_offset(self, f: FunctionEmitter, k: Index) -> Index:
        """K is adjacent."""
        return k


class ConvView(MatrixView):
    """Blocked images; `shape` is (joined, extents…): with `joined` the pixels of an image are one long row."""

    dim, rows_adjacent = 1, True

    @property
    def joined(self) -> bool:
        """Whether pixels of an image are one row."""
        return bool(self.shape[0])

    @property
    def extents(self) -> tuple[int, ...]:
        """The box's, one number where pixels are joined."""
        return self.shape[1:]

    @property
    def rows(self) -> int:
        """The box's pixels."""
        return prod(self.extents)

    @staticmethod
    def classes(op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes) -> np.ndarray:
        """Whether pixels are joined, then the box's extents."""
        assert isinstance(op, Conv)
        sides, joined = boxes.extents[:, 2:], joins_rows(op, ins, out, boxes)
        sides = sides.prod(axis=1, keepdims=True) if joined else sides
        return np.concatenate([np.full_like(sides[:, :1], joined), sides], axis=1)

    @staticmethod
    def matrix(weights: np.ndarray) -> np.ndarray:
        """[M, C, 1…] transposed."""
        return weights.reshape(weights.shape[:2]).T

    @property
    def steps(self) -> list[int]:
        """From one pixel of the output to the next along each dimension, in elements of `a`."""
        assert isinstance(self.op, Conv)
        return [step * stride for step, stride in zip(self.op.strides, self.a.strides[2:], strict=True)]

    def batches(self, f: FunctionEmitter) -> list[tuple[Index, Index]]:
        """Images."""
        return [f.box(0)]

    def corner(self, f: FunctionEmitter, batch: Sequence[Index]) -> list[Index]:
        """The box's first pixel."""
        return [*batch, 0, *(f.box(d)[0] for d in range(2, self.out.type.rank))]

    def index(self, f: FunctionEmitter, corner: Sequence[Index], row: Index, column: Index) -> list[Index]:
        """The row's pixel, as an index in the box."""
        places = self.digits(f, row)
        moved = [0] * (len(corner) - 2 - len(places)) + places
        inner = [f.add(at, place) for at, place in zip(corner[2:], moved, strict=True)]
        return [corner[0], column, *inner]

    def source(self, f: FunctionEmitter, corner: Sequence[Index]) -> Index:
        """The first pixel that the box reads."""
        return f.dot(corner, [self.a.strides[0], 0, *self.steps])

    def row_offset(self, f: FunctionEmitter, row: Index) -> Index:
        """From pixel to pixel at the convolution's strides."""
        return f.dot(self.digits(f, row), self.steps[-len(self.extents) :])

    def depth_offset(self, f: FunctionEmitter, k: Index) -> Index:
        """From block to block of channels."""
        return f.mul(f.div(k, self.a.block), self.a.strides[1])

    def digits(self, f: FunctionEmitter, row: Index) -> list[Index]:
        """A row as an index in `extents`."""
        found: list[Index] = []
        for d in range(len(self.extents) - 1, 0, -1):
            if prod(self.extents[:d]) == 1:
                return [0] * d + [row, *found]
            extent = self.extents[d]
            rest = row // extent if is_folded(row) else f.b.udiv(row, f.value(extent))
            found.insert(0, f.sub(row, f.mul(rest, extent)))
            row = rest
        return [row, *found]


MATRIX_VIEWS: dict[type[Op], type[MatrixView]] = {MatMul: MatMulView, Conv: ConvView}
