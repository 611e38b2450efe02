"""Register tiles of a row that is too short for tiles of T pixels and of one less to cover it, whatever its width.

    width 25, T = 14    |------13------|---8---|-4-|
    width 37            |------13------|---8---|---8---|-----8|    the last one begins where it ends with the row
    40, with both edges |---edge-14----|---8---|-4-|---edge-14----|
    29, with both edges |---edge-10---|---10---|---edge-9---|
    25, with both edges |---edge-13---|---edge-12---|
    9, with both edges  |-both-edges-9-|

Tiles of four lengths do, of which the last may cover again what others have: its pixels get the same values. How many
there are of each is a size (`sizes.py`), so that one code is good for all such widths. Rows of one tile, and those of
two or three that lack taps, have a code with a tile of each length: how often it repeats is 1 for the row's width and
0 for others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import product

from brickrt.ops.cpu.emit.sizes import OPERATIONS, Size, SizeTable, alternative, is_equal, is_less
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.products.row_tiles import RepeatedTiles, RowWindow, TiledRow, tile_cycles, tiled_rows

COUNT_TILES = "tiles"
"""The operation on sizes that counts tiles: of a width, and of `_code`."""
MOST_HALVES, MOST_QUARTERS = 3, 2  # tiles of these lengths in a row
RADIX = 64
FEWEST_TILE_PIXELS = 4  # from which on there are such lengths
SHORTER_PAYS = 1.04  # times the time of tiles of one pixel less: what whole ones must exceed
MOST_RUNS = 128  # of taps, in tiles of each length that lack some


@dataclass(frozen=True)
class RowTiles:
    """How rows are cut: in tiles of at most `most` pixels by `blocks` blocks of channels; those of a short row cover
    pixels `twice` where they may."""

    most: int
    blocks: int
    isa: Isa
    twice: bool = True

    def runs(self, window: RowWindow, shape_class: tuple[int | Size, int, int, int]) -> list[RepeatedTiles]:
        """As `tile_runs`."""
        return [run for row, outputs in tiled_rows(window, shape_class) for run in self.row_runs(row, outputs)]

    def row_runs(self, row: TiledRow, outputs: int | Size) -> list[RepeatedTiles]:
        """The tiles of one row."""
        most, half = self.most, lengths(self.most)[2]
        if not isinstance(outputs, Size) or not self.is_short(row, outputs):
            return row.runs(outputs, most)
        if outputs <= most:
            return list(self.few(row, outputs))
        lacking = bool(row.left or row.right)
        few_lack = row.left <= (most + 2) // 2 and row.right <= (most + 1) // 2
        if (lacking or not self.twice) and few_lack and outputs < 2 * most + half:
            return list(self.parts(row, outputs))
        ends = most * (bool(row.left) + bool(row.right))
        covered = self.twice and most >= FEWEST_TILE_PIXELS and max(row.left, row.right) <= most
        return (
            list(self.short(row, outputs))
            if covered and outputs > max(most, ends + half - 1)
            else row.runs(outputs, most)
        )

    def is_short(self, row: TiledRow, outputs: int | Size) -> bool:
        """Whether tiles of T pixels and of one less may not cover the row, and others are not much code."""
        return 1 < outputs < self.most * (self.most - 1) and not self.is_much(row)

    def is_much(self, row: TiledRow) -> bool:
        """Whether a tile of each length is much code, as taps that some pixels lack are runs of their own."""
        return bool(row.left or row.right) and (self.most + 2) * min(len(row.offsets), 2 * self.most) > MOST_RUNS

    def few(self, row: TiledRow, outputs: Size) -> Iterator[RepeatedTiles]:
        """A tile as long as the row, of each length from 2 to T."""
        for length in range(2, self.most + 1):
            for repeat in repeats(outputs, length):
                yield row.run(0, length, repeat, end=0)

    def parts(self, row: TiledRow, outputs: Size) -> Iterator[RepeatedTiles]:
        """Two tiles, or three where two do not hold the row, a pixel apart at most: of each length that first, middle
        and last ones have."""
        three = is_less(2 * self.most, outputs)
        first = -(-outputs // (2 + three))
        middle = (outputs - first + 1) // 2 * three
        last = outputs - first - middle
        for number, (count, kinds) in enumerate(zip((first, middle, last), lengths_of_parts(self.most), strict=True)):
            for length in kinds:
                for repeat in repeats(count, length):
                    start = (0, first, outputs - length)[number]
                    yield row.run(start, length, repeat, end=0 if number == 2 else None)

    def short(self, row: TiledRow, outputs: Size) -> Iterator[RepeatedTiles]:
        """Tiles of T pixels that lack taps at the ends, where there are any; of four lengths between them."""
        most = self.most
        left, right = (most * bool(lacking) for lacking in (row.left, row.right))
        if left:
            yield row.run(0, left)
        inner = outputs - left - right
        start: int | Size = left
        own = self.blocks, self.isa.lanes, self.isa.double_pumped
        for which, length in enumerate(lengths(most)):
            count = outputs.table.make(COUNT_TILES, inner, _code(which, most, *own))
            last = outputs - right - length
            tiles = row.run(start, length, count)
            yield replace(tiles, latest=row.residue + last * row.step, in_latest=last * row.advance)
            start = start + count * length
        if right:
            yield row.run(outputs - right, right, end=0)


def repeats(pixels: int | Size, length: int) -> list[int | Size]:
    """How often a tile of a length repeats: 1 where there are so many pixels, else 0. A size in broad code, which has
    tiles of all lengths; nothing in other code where it is 0."""
    repeat = alternative(is_equal(pixels, length))
    return [repeat] if isinstance(repeat, Size) or repeat else []


@lru_cache(maxsize=1 << 12)
def choose_length(window: RowWindow, width: int, blocks: int, most: int, isa: Isa) -> int:
    """The most pixels of a tile for whole rows of `width` outputs: `most`, or one less where tiles that cover these
    rows, which are cut as those of other widths are, take less time so. One less is other code, so it must pay."""
    tiles = RowTiles(most, blocks, isa)
    shape = window.shape_class(0, width)
    if most <= FEWEST_TILE_PIXELS or not any(
        tiles.is_short(row, int(outputs)) for row, outputs in tiled_rows(window, shape)
    ):
        return most
    whole, less = (_row_cycles(window, width, RowTiles(each, blocks, isa)) for each in (most, most - 1))
    return most - 1 if less * SHORTER_PAYS < whole else most


def _row_cycles(window: RowWindow, width: int, tiles: RowTiles) -> float:
    """Cycles of a row per input channel, all taps as one."""
    shape = window.shape_class(0, width)
    runs = tiles.runs(window, (SizeTable(broad=False).number(width), *shape[1:]))
    each = (tile_cycles(tiles.blocks, run.tile.count, tiles.isa.lanes, tiles.isa.double_pumped) for run in runs)
    return sum(int(run.repeat) * cycles for run, cycles in zip(runs, each, strict=True))


def lengths(most: int) -> tuple[int, int, int, int]:
    """The lengths of tiles of at most `most` pixels."""
    half = most // 2 + 1
    return most, most - 1, half, half // 2


@cache
def lengths_of_parts(most: int) -> tuple[list[int], ...]:
    """The lengths that the first, the middle and the last of the `parts` of rows have, whatever these are."""
    found: tuple[set[int], ...] = (set(), set(), set())
    for width in range(most + 1, 2 * most + lengths(most)[2]):
        first = -(-width // (3 if width > 2 * most else 2))
        middle = (width - first + 1) // 2 if width > 2 * most else 0
        for each, length in zip(found, (first, middle, width - first - middle), strict=True):
            each.add(length)
    return tuple(sorted(each - {0}) for each in found)


def _code(*parts: int) -> int:
    """Small numbers as one."""
    code = 0
    for part in reversed(parts):
        code = code * RADIX + int(part)
    return code


def _count(width: int, code: int) -> int:
    """Tiles of one length in a row."""
    parts = [code // RADIX**k % RADIX for k in range(5)]
    return tile_counts(width, *parts[1:])[parts[0]]


OPERATIONS[COUNT_TILES] = _count


@lru_cache(maxsize=1 << 12)
def tile_counts(width: int, most: int, blocks: int, lanes: int, double_pumped: int) -> tuple[int, int, int, int]:
    """How many tiles of each of the `lengths` cover a row in least time."""
    cycles = [tile_cycles(blocks, length, lanes, bool(double_pumped)) for length in lengths(most)]
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
