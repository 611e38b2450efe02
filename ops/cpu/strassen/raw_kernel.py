"""Two levels of Strassen's scheme by weights of two bytes, which stay in memory as they are: sums are not stored.

The seven panels of a round are added up in the worker's scratch just before all tiles of rows read them. What is
summed, and in which order, is as with stored sums, and so are the bits of outputs. Columns lie in powers of two of
their own, as they do there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.strassen.second_factors import column_sizes, second_factor
from brickrt.ops.cpu.strassen.sizes import PRODUCTS
from brickrt.ops.cpu.strassen.two_level_body import Round, RowTile, TwoLevelStrassenBody
from brickrt.ops.cpu.strassen.two_level_scheme import TwoLevelStrassenScheme

QUARTERS = 4
PARTS = QUARTERS**2
F16, F32 = np.dtype(np.float16), np.dtype(np.float32)


class RawStrassenKernel(TwoLevelStrassenScheme):
    """A matrix product with 49 of 64 multiplications, by float16 weights."""

    @property
    def panels(self) -> int:
        """See `StrassenScheme`: the parts of a chunk and a group of tiles."""
        return PARTS * self.panel

    @property
    def weight_type(self) -> np.dtype:
        """See `StrassenScheme`."""
        return F16

    @property
    def factors_elements(self) -> int:
        """Elements of the parts, of two bytes."""
        return self.chunks * self.chunk_depth * self.padded_columns

    @property
    def sizes_at(self) -> int:
        """Where the sizes of columns lie behind them, in elements of four bytes."""
        return self.factors_elements // 2

    @property
    def panels_at(self) -> int:
        """Where the panels of a round lie in the workspace."""
        return self.norms_at + self.norms_elements

    @property
    def panel_stride(self) -> int:
        """See `StrassenScheme`: an odd number of vectors, to spread over the cache."""
        return self.panel + self.lanes

    @property
    def workspace(self) -> int:
        """See `StrassenScheme`; and the panels of a round."""
        return super().workspace + F32.itemsize * PRODUCTS * self.panel_stride

    def pack_parts(self, i: int, array: np.ndarray) -> Sequence[np.ndarray]:
        """`b` with columns of one size as [chunk, group of tiles, K/chunks/4, quarter, quarter of that, BLOCKS*lanes],
        then, in float32, the sizes of its columns and a number that is not 0 where it must not be mixed. The bias up to
        whole groups."""
        if i != 1:
            return super().pack_parts(i, array)
        b = self.view.matrix(array)
        b = np.pad(b, [(0, self.overhang), (0, self.padded_columns - self.columns)])
        even, sizes = even_columns(b)
        last = np.array([not np.isfinite(b).all()], np.float32)
        return [self.parts_of(even), np.concatenate([sizes, last]).view(F16)]

    def packed_elements(self, i: int) -> int:
        """See `Kernel`."""
        return 2 * (self.flag_at + 1) if i == 1 else super().packed_elements(i)

    def parts_of(self, even: np.ndarray) -> np.ndarray:
        """The parts of each chunk and group of tiles; quarters in the order B11, B12, B21, B22."""
        width = self.panel // self.part_depth
        split = even.reshape(self.chunks, 2, 2, self.part_depth, -1, 2, 2, width)
        return np.ascontiguousarray(split.transpose(0, 4, 3, 1, 5, 2, 6, 7))

    def emit(self, f: FunctionEmitter) -> None:
        """See `RawStrassenBody`."""
        RawStrassenBody(self, f).emit()


def even_columns(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Float16 columns of one size, and what they are to be multiplied by to be those of `b` again, float32. That size
    is 1, or more where `b` has larger columns: none is divided, which could lose bits."""
    sizes = column_sizes(b.astype(F32))
    sizes /= max(1, sizes.max(initial=0))
    even = np.divide(b, np.where(sizes > 0, sizes, 1), dtype=F32)
    return even.astype(F16), sizes


class RawStrassenBody(TwoLevelStrassenBody):
    """Emits two levels of Strassen's scheme by parts of the weights."""

    k: RawStrassenKernel

    def round(self, at: Round) -> None:
        """The panels of a round, then all tiles of rows."""
        f, k = self.f, self.k
        panels = f.address(self.work, k.panels_at, self.dtype)
        with f.loop(0, k.part_depth) as c:
            for number in f.cases(at.number, PRODUCTS):
                for j in range(self.blocks):
                    read = f.add(f.mul(c, PARTS * self.width), j * k.lanes)
                    for n, value in enumerate(self.made(at.b, read, number)):
                        made = f.add(f.mul(c, self.width), n * k.panel_stride + j * k.lanes)
                        f.store(value, panels, made, self.dtype, k.lanes)
        for start, repeat, count in k.tiles.runs:
            with f.loop(0, repeat) as r:
                RawRowTile(self, at, f.add(start, f.mul(r, count)), count, panels).emit()

    def made(self, b: ir.Value, place: Index, number: int) -> list[ir.Value]:
        """A vector of each panel of a round."""
        f, k, minus = self.f, self.k, self.f.b.fsub

        def outer(inner: int) -> ir.Value:
            def part(quarter: int) -> ir.Value:
                return f.load(b, f.add(place, (quarter * QUARTERS + inner) * self.width), F16, k.lanes)

            return second_factor(number, part, minus)

        sums = [outer(inner) for inner in range(QUARTERS)]
        return [second_factor(n, sums.__getitem__, minus) for n in range(PRODUCTS)]

    def factors(self, chunk: Index, group: Index, number: Index) -> ir.Value:
        """Address of the parts of a group of columns."""
        f, k = self.f, self.k
        groups = -(-k.columns // self.group)
        return f.address(self.b, f.mul(f.add(f.mul(chunk, groups), group), k.panels), F16)

    def weight(self, row: Index, column: Index) -> ir.Value:
        """See `StrassenFrame`: the element of a part, times its column's size."""
        f, k = self.f, self.k
        chunk, row = f.div(row, k.chunk_depth), f.rem(row, k.chunk_depth)
        lower, row = f.div(row, k.part_depth), f.rem(row, k.part_depth)
        group, inner = f.div(column, self.group), f.rem(column, self.group)
        right, inner = f.div(inner, self.width), f.rem(inner, self.width)
        outer = f.add(f.mul(f.div(lower, 2), 2), f.div(right, 2))
        part = f.add(f.mul(outer, QUARTERS), f.mul(f.rem(lower, 2), 2), f.rem(right, 2))
        at = f.add(f.mul(f.add(f.mul(row, PARTS), part), self.width), inner)
        sizes = f.load(self.b, f.add(k.sizes_at, column), F32, k.lanes)
        return f.b.fmul(f.load(self.factors(chunk, group, 0), at, F16, k.lanes), sizes)


class RawRowTile(RowTile):
    """A tile of rows in one round, whose panels lie in the workspace."""

    def __init__(self, body: RawStrassenBody, at: Round, start: Index, count: int, panels: ir.Value) -> None:
        super().__init__(body, at, start, count)
        self.parts, self.b = at.b, panels

    def later(self) -> ir.Value:
        """The parts of the next group."""
        return self.f.address(self.parts, self.k.panels, F16)
