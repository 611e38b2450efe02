"""How a Strassen kernel cuts columns, K and rows: pure figures, some of which the planner's cost model shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.sizes import Size, alternative, greatest, is_equal, least
from brickrt.ops.cpu.products.conv_geometry import reads_one_pixel
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul

BLOCKS = 2  # blocks of columns of a register tile
PRODUCTS = 7
PANELS_AHEAD = 2  # between the panel that tiles of rows share and the one that they ask for
CHUNKS = {0: 768, 1: 384, 2: 768}  # by levels: of K, at most where it divides evenly
SHARED_CHUNK = 768  # the same of one level where tiles of rows share panels
WHOLE = 16  # elements of K that chunks are whole multiples of where nothing is halved
CHUNK_COST = 24  # elements of K that take as long as beginning another chunk


def group_columns(lanes: int, levels: int = 1) -> int:
    """Columns of a pair of register tiles (of four, by two levels), which boxes had better be cut at multiples of."""
    return 2**levels * BLOCKS * lanes


def most_rows(registers: int) -> int:
    """Rows of a register tile, at most: beside its sums, weights of all blocks and what is loaded early."""
    return (registers - BLOCKS - 2) // BLOCKS


def fits(op: Op, b: Sequence[int]) -> bool:
    """Whether the kernel computes an operator with constant weights of this shape: one matrix for all it is applied to.
    The images of a convolution are blocked."""
    if isinstance(op, Conv):
        return reads_one_pixel(op) and op.groups == op.gate_parts == 1 and not op.channel_scaled
    return isinstance(op, MatMul) and len(b) == 2


def shares_panels(levels: int, paced: bool) -> bool:
    """Whether all tiles of rows go through a product before the next one (`body.py`): where weights are `paced`
    (`Isa.paces_weights`), so that few panels wait in L2 at a time."""
    return levels == 1 and paced


def chunks_of(depth: int, lanes: int, levels: int = 1, paced: bool = False) -> tuple[int, int]:
    """In how many equal chunks K is swept, and the elements of one, which is halved `levels` times into whole vectors
    (not halved, it is a multiple of WHOLE); the last may reach over the end of K. `paced` as in `shares_panels`."""
    unit = 2**levels * lanes if levels else max(lanes, WHOLE)
    whole = max(1, -(-depth // unit))

    def cost(n: int) -> float:
        return n * CHUNK_COST + n * -(-whole // n) * unit

    most = SHARED_CHUNK if shares_panels(levels, paced) else CHUNKS[levels]
    n = min(range(-(-whole // (most // unit)), whole + 1), key=cost)
    return n, -(-whole // n) * unit


def part_starts(rows: int | Size, levels: int) -> list[int | Size]:
    """Where the parts of a box's rows begin, which is cut in halves `levels` times."""
    starts: list[int | Size] = [0]
    for level in range(1, levels + 1):
        starts = [start + n * -(-rows // 2**level) for start in starts for n in (0, 1)]
    return starts


def part_rows(rows: int | Size, levels: int) -> list[int | Size]:
    """Rows that are there in each of the parts: all end where the halves that they are parts of do."""
    part, starts = -(-rows // 2**levels), part_starts(rows, levels)
    ends = [-(-rows // 2) if n < len(starts) // 2 else rows for n in range(len(starts))]
    return [least(part, greatest(0, end - start)) for start, end in zip(starts, ends, strict=True)]


def tile_rows(rows: int, most: int) -> int:
    """Most rows of the register tiles that code for `rows` rows of a part has, at most `most`. Where there are half as
    many rows, tiles have from half of `most` to `most`, which any number of rows can be cut in: one code does."""
    return most if rows >= most // 2 else most // 2 - 1


@dataclass(frozen=True)
class TileCounts:
    """The register tiles of the rows of a part, the fewest of at most `most` rows: `count`, of which `more` have a row
    more than the others, which have `each`. Code has tiles of any of the `heights`."""

    count: int | Size
    each: int | Size
    more: int | Size
    heights: range

    @staticmethod
    def of(rows: int | Size, top: int, most: int) -> TileCounts:
        """Tiles that are as equal as they can be, of code that has tiles of up to `top` rows (`tile_rows`)."""
        count, least_rows = greatest(1, -(-rows // most)), most // 2 if top == most else 1
        return TileCounts(count, rows // count, rows % count, range(top, max(1, least_rows) - 1, -1))

    @property
    def runs(self) -> list[tuple[int | Size, int | Size, int]]:
        """Where tiles of one size begin, how many there are, and their rows."""
        runs = list[tuple[int | Size, int | Size, int]]()
        start: int | Size = 0
        for rows in self.heights:
            more, others = (alternative(is_equal(n, rows)) for n in (self.each + 1, self.each))
            repeat = more * self.more + others * (self.count - self.more)
            runs.append((start, repeat, rows))
            start = start + repeat * rows
        return [run for run in runs if not (isinstance(run[1], int) and run[1] == 0)]
