"""How a Strassen kernel cuts columns, K and rows: pure figures, some of which the planner's cost model shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.sizes import Size, greatest, least
from brickrt.ops.cpu.products.conv_geometry import reads_one_pixel
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul

BLOCKS = 2  # blocks of columns of a register tile
PRODUCTS = 7
CHUNKS = {1: 384, 2: 768}  # by levels: of K, at most where it divides evenly
MORE_TILES = 13 / 12  # than there have to be: each begins and ends, and three instead of two take 15 % longer
CHUNK_COST = 24  # elements of K that take as long as beginning another chunk


def group_columns(lanes: int, levels: int = 1) -> int:
    """Columns of a pair of register tiles (of four, by two levels), which boxes had better be cut at multiples of."""
    return 2**levels * BLOCKS * lanes


def fits(op: Op, b: Sequence[int]) -> bool:
    """Whether the kernel computes an operator with constant weights of this shape: one matrix for all it is applied to.
    The images of a convolution are blocked."""
    if isinstance(op, Conv):
        return reads_one_pixel(op) and op.groups == op.gate_parts == 1 and not op.channel_scaled
    return isinstance(op, MatMul) and len(b) == 2


def chunks_of(depth: int, lanes: int, levels: int = 1) -> tuple[int, int]:
    """In how many equal chunks K is swept, and the elements of one, which is halved `levels` times into whole vectors;
    the last may reach over the end of K."""
    unit = 2**levels * lanes
    whole = max(1, -(-depth // unit))

    def cost(n: int) -> float:
        return n * CHUNK_COST + n * -(-whole // n) * unit

    n = min(range(-(-whole // (CHUNKS[levels] // unit)), whole + 1), key=cost)
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
    """Rows of a register tile, at most `most`, such that tiles of so many and of one less make up `rows`: one of few
    numbers where there is one that makes hardly more tiles, so that rows of many sizes have code in common."""
    fewest = max(1, -(-rows // most))
    counts = {t: -(-rows // t) for t in range(most, most // 2, -2)}
    few = (t for t, n in counts.items() if (t - 1) * n <= rows and n <= MORE_TILES * fewest)
    return next(few, -(-rows // fewest))


@dataclass(frozen=True)
class TileCounts:
    """Register tiles of the rows of a part: `count`, of which `short` have a row less than the `long` ones before."""

    count: int | Size
    long: int
    short: int | Size

    @staticmethod
    def of(rows: int | Size, long: int) -> TileCounts:
        """Tiles of `long` rows and of one less (see `tile_rows`)."""
        count = -(-rows // long)
        return TileCounts(count, long, count * long - rows)

    @property
    def runs(self) -> list[tuple[int | Size, int | Size, int]]:
        """Where tiles of one size begin, how many there are, and their rows."""
        many = self.count - self.short
        runs = [(0, many, self.long), (many * self.long, self.short, self.long - 1)]
        return [run for run in runs if run[2] and not (isinstance(run[1], int) and run[1] == 0)]
