"""Matrix products with seven eighths of the multiplications: Strassen's scheme, as Winograd arranged it. Pointwise
convolutions are such products too (`products/matrix_view.py`).

Rows of a box, columns and K are halved; with the quarters A11 … B22 a product is seven products of quarters,

    P1 = A11 B11    P3 = S4 B22    P5 = S1 T1    P7 = S3 T3      C11 = P1 + P2    U3 = P1 + P6 + P7
    P2 = A12 B21    P4 = A22 T4    P6 = S2 T2                    C21 = U3 - P4    C12 = P1 + P6 + P5 + P3
                                                                 C22 = U3 + P5
    S1 = A21 + A22,  S2 = S1 - A11,  S3 = A11 - A21,  S4 = A12 - S2
    T1 = B12 - B11,  T2 = B22 - T1,  T3 = B22 - B12,  T4 = T2 - B21

The sums T are packed with the constant `b`; all first factors of a box's rows lie in the worker's scratch. Columns are
paired tile by tile, and all seven products of a pair of register tiles follow each other, so that the outputs stay in
registers and L1. K is swept in chunks whose first factors fit L2; beyond its end it counts as zero.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, ClassVar

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.emit.sizes import Size, greatest, least
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.operands.epilogue import Epilogue
from brickrt.ops.cpu.products.matrix_view import MATRIX_VIEWS, MatrixView
from brickrt.ops.cpu.strassen.second_factors import column_sizes, second_factors
from brickrt.ops.cpu.strassen.sizes import (
    BLOCKS,
    PANELS_AHEAD,
    PRODUCTS,
    TileCounts,
    chunks_of,
    group_columns,
    most_rows,
    part_rows,
    shares_panels,
    tile_rows,
)
from brickrt.ops.cpu.weighted_kernel import WeightedKernel
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes

LINE = 16  # elements of a cache line
LINE_BYTES = 64
MOST_PREFETCHED = 8  # lines, while one vector of each factor is computed
LINES_APART = 4  # rows of a factor that lie a multiple of so many vectors apart would meet in few sets of the cache


@dataclass(frozen=True)
class StrassenScheme(WeightedKernel):
    """`shape_class` is (groups, ragged, …): the most groups of tiles of columns that a box touches, whether columns are
    cut inside groups, and what `view` takes for constant. A group is a pair here, four tiles where `levels` is 2."""

    op: MatMul | Conv
    levels: ClassVar[int] = 1
    effort = 6
    sized = True
    compiles_quickly = True
    knows_channels = False

    @property
    def open_classes(self) -> Sequence[int]:
        """See `Kernel`: groups, and extents of boxes."""
        return 0, *range(3 if isinstance(self.op, Conv) else 2, len(self.shape_class))

    def decisions(self) -> tuple[Any, ...]:
        """See `Kernel`: rows of factors lie at a constant stride."""
        return self.tile_rows, self.chunk_depth

    @property
    def tile_rows(self) -> int:
        """Most rows of a register tile (`tile_rows`)."""
        return self.decided[0] if self.decided else tile_rows(int(self.part_rows), self.most)

    @property
    def lines_ahead(self) -> Index:
        """Lines of the panels that are read first, which each step of the first factors prefetches."""
        steps = greatest(1, self.whole_rows * (self.part_depth // self.lanes))
        first = PANELS_AHEAD * self.panel if self.shares_panels else self.panels
        return least(MOST_PREFETCHED, -(-first * self.weight_type.itemsize // (steps * LINE_BYTES)))

    @property
    def shares_panels(self) -> bool:
        """See `sizes.py`."""
        return shares_panels(self.levels, self.isa.paces_weights)

    @property
    def whole_rows(self) -> int | Size:
        """Rows that all parts have."""
        return reduce(least, part_rows(self.rows, self.levels))

    @classmethod
    def classify(
        cls, op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes, isa: Isa
    ) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """Boxes by what their matrix views take for constant."""
        unit, view = group_columns(isa.lanes, cls.levels), MATRIX_VIEWS[type(op)]
        lo, hi = boxes.lo[:, view.dim], boxes.hi[:, view.dim]
        groups = int((-(-hi // unit) - lo // unit).max(initial=1))
        ragged = bool(np.any(lo % unit) or np.any(hi[hi < out.shape[view.dim]] % unit))
        shapes, which = np.unique(view.classes(op, ins, out, boxes), axis=0, return_inverse=True)
        return which.reshape(-1), [(groups, int(ragged), *shape) for shape in shapes.tolist()]

    @cached_property
    def view(self) -> MatrixView:
        """The operands as matrices."""
        return MATRIX_VIEWS[type(self.op)](self.op, self.ins[0], self.out, self.shape_class[2:])

    @property
    def rows(self) -> int:
        """Rows of a box."""
        return self.view.rows

    @property
    def groups(self) -> int:
        """The most groups of tiles of columns that a box touches."""
        return self.shape_class[0]

    @property
    def ragged(self) -> bool:
        """Whether boxes cut columns inside groups."""
        return bool(self.shape_class[1])

    @property
    def tiles(self) -> TileCounts:
        """Register tiles of the rows of a part."""
        return TileCounts.of(self.part_rows, self.tile_rows, self.most)

    @property
    def part_rows(self) -> int:
        """Rows of the first of the parts that a box is cut in; the last rows of others may be missing."""
        return -(-self.rows // 2**self.levels)

    @property
    def columns(self) -> int:
        """Columns of the product."""
        return self.view.columns

    @property
    def chunks(self) -> int:
        """Chunks that K is swept in."""
        return -(-self.view.depth // self.chunk_depth)

    @cached_property
    def chunk_depth(self) -> int:
        """Elements of K in a chunk."""
        if self.decided:
            return self.decided[1]
        return chunks_of(self.view.depth, self.lanes, self.levels, self.isa.paces_weights)[1]

    @property
    def part_depth(self) -> int:
        """Elements of K that one of the products sums over."""
        return self.chunk_depth // 2**self.levels

    @property
    def overhang(self) -> int:
        """Elements of the last chunk that K does not have."""
        return self.chunks * self.chunk_depth - self.view.depth

    @property
    def most(self) -> int:
        """Rows of a register tile, at most."""
        return most_rows(self.isa.registers)

    @property
    def panel(self) -> int:
        """Elements of `b` that one product of a chunk and a tile of columns reads."""
        return self.part_depth * BLOCKS * self.lanes

    @property
    def panel_stride(self) -> int:
        """Elements from one panel to the next."""
        return self.panel

    @property
    def panels(self) -> int:
        """Elements of `b` that all products of a chunk and a group of tiles of columns read, by one level."""
        return PRODUCTS * self.panel

    @property
    def weight_type(self) -> np.dtype:
        """The type of the elements of panels."""
        return self.out.dtype

    @cached_property
    def epilogue(self) -> Epilogue:
        """What is applied to the sums."""
        found = Epilogue.of(self.op, self.ins, self.out, self.lanes)
        return found.joined() if self.view.joined else found

    # ---- workspace, in elements: first factors, three register tiles, sums of the chunks so far

    @property
    def sum_stride(self) -> int:
        """From one row of a factor to the next."""
        vectors = self.part_depth // self.lanes
        return (vectors + (vectors % LINES_APART == 0)) * self.lanes

    @property
    def factor_elements(self) -> int:
        """From one factor to the next: all are written at once, at an odd number of vectors from each other."""
        vectors = self.part_rows * self.sum_stride // self.lanes
        return (vectors + 1 - vectors % 2) * self.lanes

    @property
    def spills_at(self) -> int:
        """Two register tiles, or two of all rows of a part."""
        return PRODUCTS**self.levels * self.factor_elements

    @property
    def tile_elements(self) -> int:
        """Elements of a register tile."""
        return self.most * BLOCKS * self.lanes

    @property
    def raw_at(self) -> int:
        """A tile that the epilogue is still to be applied to."""
        rows = self.part_rows if self.shares_panels else self.most
        return self.spills_at + 2 * rows * BLOCKS * self.lanes

    @property
    def partial_at(self) -> int:
        """Sums of the chunks so far."""
        return self.raw_at + self.tile_elements

    @property
    def partial_elements(self) -> int:
        """Room for the four outputs of a pair of tiles of columns."""
        return 4 * self.part_rows * BLOCKS * self.lanes

    @property
    def norms_at(self) -> int:
        """Sums of squares of rows (`row_ranges.py`), a vector for each."""
        return self.partial_at + (self.groups * self.partial_elements if self.chunks > 1 else 0)

    @property
    def norms_elements(self) -> int:
        """Room for those of all rows."""
        return self.part_rows * 2**self.levels * self.lanes

    def norm_at(self, f: FunctionEmitter, row: Index, part: int) -> Index:
        """Where that of a row of a part lies."""
        return f.add(self.norms_at, f.mul(f.add(f.mul(row, 2**self.levels), part), self.lanes))

    @property
    def workspace(self) -> int:
        """First factors, register tiles, partial sums where K is swept in chunks, and norms."""
        return 4 * (self.norms_at + self.norms_elements)

    @property
    def padded_columns(self) -> int:
        """Columns up to whole groups."""
        unit = group_columns(self.lanes, self.levels)
        return -(-self.columns // unit) * unit

    @property
    def sizes_at(self) -> int:
        """Elements of the packed `b` before the sizes of its columns."""
        return self.factors_elements + self.view.depth * self.padded_columns

    @property
    def flag_at(self) -> int:
        """Elements before the number that tells whether it must not be mixed."""
        return self.sizes_at + self.padded_columns

    @property
    def factors_elements(self) -> int:
        """Elements of `b`'s second factors, behind which it lies as it is: [K][padded columns]."""
        groups = self.padded_columns // group_columns(self.lanes, self.levels)
        return groups * self.chunks * PRODUCTS**self.levels * self.panel

    def pack_parts(self, i: int, array: np.ndarray) -> Sequence[np.ndarray]:
        """`b` [K, N] with columns of one size → [group of tiles, chunk, product, K/chunks/2, BLOCKS*lanes]; then `b` as
        it is, [K, padded columns], the sizes of its columns, and a number that is not 0 where it must not be mixed. The
        bias up to whole groups."""
        missing = self.padded_columns - self.columns
        if i == 1:
            b = self.view.matrix(array)
            b = np.pad(b, [(0, 0), (0, missing)]) if missing else b
            sizes = column_sizes(b)
            even = np.zeros((len(b) + self.overhang, b.shape[1]), np.float32)
            np.divide(b, np.where(sizes > 0, sizes, 1), out=even[: len(b)])
            factors = self.packed_factors(even)
            return [factors, b, sizes, np.array([not np.isfinite(b).all()], np.float32)]
        if i == 2 and self.op.bias:
            return [np.pad(array, (0, missing))]
        return super().pack_parts(i, array)

    def packing(self, i: int) -> Hashable:
        """See `Kernel`."""
        return super().packing(i), self.view.depth, self.columns

    def packed_elements(self, i: int) -> int:
        """See `Kernel`."""
        if i == 1:
            return self.flag_at + 1
        return self.padded_columns if i == 2 and self.op.bias else super().packed_elements(i)

    def packed_factors(self, b: np.ndarray) -> np.ndarray:
        """Second factors of `b` in the order in which the kernel reads them."""
        factors = second_factors(self.grouped(b), self.levels)
        return factors.transpose(3, 1, 0, 2, 4)

    def grouped(self, b: np.ndarray) -> np.ndarray:
        """`b` as [chunks, K/chunks, groups, columns of a group]."""
        width = group_columns(self.lanes, self.levels)
        return b.reshape(self.chunks, -1, b.shape[1] // width, width)
