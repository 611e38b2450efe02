"""Matrix products with eleven sixteenths of the multiplications: S. Winograd's inner product, for most elements of K.

    a0 b0 + a1 b1 = (a0 + b1) (a1 + b0) - a0 a1 - b0 b1

takes one multiplication and two additions for every output, where the last two terms belong to a row and to a column
and are summed once. Zen 4 has units for additions beside those for multiply-adds, which stand idle else. Pairs that are
computed so take turns with elements that are multiplied as ever, so that both kinds of units work (`pairing.py`).

Rounding is in proportion to |a|² + |b|², which is least where rows and columns are as long as each other (R. Brent,
"Error analysis of algorithms for matrix multiplication and triangular decomposition using Winograd's identity", Numer.
Math. 16, 1970). So columns of `b` are packed times powers of two that make their largest elements alike, and the rows
of `a` are copied to the worker's scratch times powers of two that make their lengths those of the columns. No row errs
by what is in another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from brickrt.ops.cpu.paired.pairing import pair_products
from brickrt.ops.cpu.strassen.scheme import StrassenScheme
from brickrt.ops.cpu.strassen.second_factors import column_sizes
from brickrt.ops.cpu.strassen.sizes import BLOCKS

Scaled = Callable[[np.ndarray], "tuple[np.ndarray, np.ndarray] | None"]
"""Columns, scaled, and what takes them back; None where they cannot be."""

SLICE = 1 << 18  # elements of `b` that are packed at a time
WORKING_REGISTERS = 8  # beside the sums of a tile: weights of four elements of K, and what is multiplied
HEIGHTS = (24, 22, 20, 18, 17, 16, 14, 12)  # rows of tiles: fewer sums do not hide how long each takes
TILE_ROWS = 0.5  # rows that take as long as beginning and ending a tile
LARGEST_EXPONENT = 15  # of the columns of `b`: no float16 is larger, and none loses bits
F16, F32 = np.dtype(np.float16), np.dtype(np.float32)


@dataclass(frozen=True)
class PairedScheme(StrassenScheme):
    """`shape_class` as in `StrassenScheme`, with groups of two blocks of columns. Weights are float32 or float16."""

    levels: ClassVar[int] = 0

    @property
    def tile_rows(self) -> int:
        """Rows of every register tile. The last one may reach beyond the box's rows."""
        return self.decided[0] if self.decided else tile_height(int(self.rows), self.most)

    @property
    def most(self) -> int:
        """Rows of a register tile, at most."""
        return self.isa.registers - WORKING_REGISTERS

    @property
    def tile_count(self) -> int:
        """Register tiles that cover the box's rows."""
        return -(-self.rows // self.tile_rows)

    @property
    def covered_rows(self) -> int:
        """Rows of all tiles."""
        return self.tile_count * self.tile_rows

    @property
    def weight_type(self) -> np.dtype:
        """See `StrassenScheme`."""
        return self.ins[1].dtype

    @property
    def length(self) -> int:
        """That of a row of `a` once it is scaled, as a power of two: near that of columns whose elements are normally
        distributed."""
        return LARGEST_EXPONENT - 1 + round(math.log2(self.view.depth) / 2)

    # ---- workspace, in elements: rows of a chunk, a tile, per row what belongs to it, sums of the chunks so far

    @property
    def tile_at(self) -> int:
        """A register tile."""
        return self.covered_rows * self.sum_stride

    @property
    def row_values(self) -> int:
        """Elements that hold a number for every row."""
        return -(-self.covered_rows // self.lanes) * self.lanes

    @property
    def norms_at(self) -> int:
        """Sums of squares of rows."""
        return self.tile_at + self.most * self.lanes

    @property
    def scales_at(self) -> int:
        """What rows are multiplied by."""
        return self.norms_at + self.row_values

    @property
    def returns_at(self) -> int:
        """What takes sums of scaled rows back; 0 for rows of zeros."""
        return self.scales_at + self.row_values

    @property
    def products_at(self) -> int:
        """Sums of the products of a row's pairs, in a chunk."""
        return self.returns_at + self.row_values

    @property
    def partial_at(self) -> int:
        """Sums of the chunks so far: block by block of columns, the rows of all tiles."""
        return self.products_at + self.row_values

    @property
    def partial_elements(self) -> int:
        """Room for those of a group of columns."""
        return self.covered_rows * BLOCKS * self.lanes

    @property
    def workspace(self) -> int:
        """See `StrassenScheme`."""
        return F32.itemsize * (self.widened_at + 2 * self.chunk_depth * self.lanes * self.widens)

    @property
    def widened_at(self) -> int:
        """A block of columns in a chunk of K, where weights are widened."""
        return self.partial_at + (self.groups * self.partial_elements if self.chunks > 1 else 0)

    @property
    def widens(self) -> bool:
        """Whether float16 weights are widened once for all tiles of rows."""
        return self.weight_type == F16 and self.tile_count > 1

    # ---- weights

    @property
    def factors_elements(self) -> int:
        """Elements of `b`, K up to whole chunks."""
        return self.chunks * self.chunk_depth * self.padded_columns

    @property
    def sizes_at(self) -> int:
        """Where what takes sums of scaled columns back lies behind them, in elements of four bytes."""
        return self.factors_elements * self.weight_type.itemsize // F32.itemsize

    @property
    def pairs_at(self) -> int:
        """Sums of the products of a column's pairs, behind that."""
        return self.sizes_at + self.padded_columns

    @property
    def flag_at(self) -> int:
        """See `StrassenScheme`."""
        return self.pairs_at + self.padded_columns

    def pack_parts(self, i: int, array: np.ndarray) -> Sequence[np.ndarray]:
        """`b` with scaled columns as [chunk, block of columns, K/chunks, lanes]; then, in float32, what takes columns
        back, the sums of the products of their pairs, and a number that is not 0 where `b` is as it was, because it is
        not finite, or would lose bits."""
        if i != 1:
            return super().pack_parts(i, array)
        b = self.view.matrix(array)
        scaled = self._packed(b, scaled_columns)
        blocks, back, pairs = scaled or self._unscaled(b)
        rest = [back, pairs if scaled else np.zeros_like(pairs), np.array([scaled is None], F32)]
        return [blocks, np.concatenate(rest).view(self.weight_type)]

    def _unscaled(self, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same of columns as they are."""
        with np.errstate(all="ignore"):  # the sums of pairs that are not finite are not used
            found = self._packed(b, lambda part: (part, np.ones(part.shape[1], F32)))
        assert found is not None
        return found

    def _packed(self, b: np.ndarray, scaled: Scaled) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """`b` in blocks with scaled columns, what takes these back, and the sums of the products of their pairs; some
        columns at a time, as these sums take several times their size meanwhile. None where some are not `scaled`."""
        depth, lanes = self.chunks * self.chunk_depth, self.lanes
        blocks = np.empty((self.chunks, self.padded_columns // lanes, self.chunk_depth, lanes), b.dtype)
        back, pairs = np.empty(self.padded_columns, F32), np.empty(self.padded_columns, F32)
        width = max(1, SLICE // (depth * lanes)) * lanes
        for at in range(0, self.padded_columns, width):
            end = min(at + width, self.padded_columns)
            part, whole = b[:, at:end], np.zeros((depth, end - at), b.dtype)
            whole[: len(part), : part.shape[1]] = part
            found = scaled(whole)
            if found is None:
                return None
            pieces = found[0].reshape(self.chunks, self.chunk_depth, -1, lanes)
            blocks[:, at // lanes : end // lanes] = pieces.transpose(0, 2, 1, 3)
            back[at:end], pairs[at:end] = found[1], pair_products(found[0])
        return blocks, back, pairs

    def packed_elements(self, i: int) -> int:
        """See `Kernel`."""
        if i == 1:
            return (self.flag_at + 1) * F32.itemsize // self.weight_type.itemsize
        return super().packed_elements(i)


def tile_height(rows: int, most: int) -> int:
    """Rows of the tiles of at most `most` rows that cover `rows` rows in the least time: one of a few, so few codes
    do for all numbers of rows."""
    heights = [height for height in HEIGHTS if height <= most] or [most]
    return min(heights, key=lambda height: -(-rows // height) * (height + TILE_ROWS))


def scaled_columns(b: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The columns of `b` times powers of two that bring their largest magnitudes to 2**LARGEST_EXPONENT or up to twice
    that, and what takes them back, float32: never a subnormal number, and 0 for columns of zeros, whose sums hold
    nothing but rounding. None where they are not finite, or lose bits."""
    if not np.isfinite(b).all():
        return None
    sizes = column_sizes(b.astype(F32))
    back = np.where(sizes > 0, np.maximum(np.ldexp(sizes, -LARGEST_EXPONENT), np.finfo(F32).tiny), 0).astype(F32)
    scaled = (b / np.where(back > 0, back, 1)).astype(b.dtype)
    return (scaled, back) if np.array_equal(scaled * back, b) else None
