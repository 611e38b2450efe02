"""Register tiles of a row that is too short for tiles of T pixels and of one less to cover it, whatever its width.

    width 25, T = 14    |------13------|---8---|-4-|
    width 37            |------13------|---8---|---8---|-----8|    the last one begins where it ends with the row

Tiles of four lengths do, of which the last may cover again what others have: its pixels get the same values. How many
there are of each is a size (`sizes.py`), so that one code is good for all such widths.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import TypeGuard

from brickrt.ops.cpu.emit.sizes import OPERATIONS, Size
from brickrt.ops.cpu.products.row_tiles import PixelTile, RepeatedTiles, tile_cycles

WORD = "tiles"
"""The operation on sizes that counts tiles: of a width, and of `_code`."""
MOST_HALVES, MOST_QUARTERS = 3, 2  # tiles of these lengths in a row
RADIX = 64


def is_short(width: int | Size, most: int) -> TypeGuard[Size]:
    """Whether tiles of `most` pixels and of one less cover some such widths only. Where one tile is enough, it is as
    long as the row."""
    return isinstance(width, Size) and most > 3 and most < width < most * (most - 1)


def lengths(most: int) -> tuple[int, int, int, int]:
    """The lengths of tiles of at most `most` pixels."""
    half = most // 2 + 1
    return most, most - 1, half, half // 2


def short_runs(width: Size, blocks: int, most: int, double_pumped: bool) -> list[RepeatedTiles]:
    """The tiles of a row of pixels, of `blocks` blocks of channels each."""
    runs = list[RepeatedTiles]()
    start: Size | int = 0
    for which, length in enumerate(lengths(most)):
        count = width.table.make(WORD, width, _code(which, most, blocks, double_pumped))
        tile = PixelTile(1, length, (tuple(range(length)),))
        runs.append(RepeatedTiles(tile, start, start, count, length, length, width - length))
        start = start + count * length
    return runs


def _code(*parts: int) -> int:
    """Small numbers as one."""
    code = 0
    for part in reversed(parts):
        code = code * RADIX + int(part)
    return code


def _count(width: int, code: int) -> int:
    """Tiles of one length in a row."""
    parts = [code // RADIX**k % RADIX for k in range(4)]
    return tile_counts(width, *parts[1:])[parts[0]]


OPERATIONS[WORD] = _count


@lru_cache(maxsize=1 << 12)
def tile_counts(width: int, most: int, blocks: int, double_pumped: int) -> tuple[int, int, int, int]:
    """How many tiles of each of the `lengths` cover a row in least time."""
    cycles = [tile_cycles(blocks, length, bool(double_pumped)) for length in lengths(most)]
    tries = [
        _with_few(width, most, halves, quarters)
        for halves, quarters in product(range(MOST_HALVES + 1), range(MOST_QUARTERS + 1))
    ]
    ends = [(counts, next(k for k in (3, 2, 1, 0) if counts[k])) for counts in tries if any(counts)]
    fit = [counts for counts, last in ends if lengths(most)[last] <= width]
    return min(fit, key=lambda counts: sum(n * each for n, each in zip(counts, cycles, strict=True)))


def _with_few(width: int, most: int, halves: int, quarters: int) -> tuple[int, int, int, int]:
    """The counts with so many tiles of the shorter lengths."""
    _, _, half, quarter = lengths(most)
    left = max(0, width - halves * half - quarters * quarter)
    count = -(-left // most)
    shorter = min(count, count * most - left)
    return count - shorter, shorter, halves, quarters
