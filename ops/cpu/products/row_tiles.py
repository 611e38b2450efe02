"""Register tiles along the innermost dimension, computed before any code is emitted.

A convolution keeps OB blocks of output channels for T output pixels of one row in registers. Which taps of the window
fall on the tensor depends on the pixel; since a kernel knows its boxes' width and how they meet the tensor's edges,
that is decided here, and the machine code has no test for it.

            x = 0                          width
    tiles   |--edge--|--inner--|--inner--|-inner-|-edge-|

Each is a `RepeatedTiles`; inner ones of one size are one run. Tiles have T pixels or one less, so that code for a row
is code for all that are long enough: how often runs repeat may be a size (`sizes.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np

from brickrt.ops.cpu.emit.sizes import Size
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.types import Boxes

L2_BYTES_PER_CYCLE = 20  # what streaming weights out of L2 reaches
WIDEST_ROW = 512  # pixels; longer ones are cut in tiles like it
ONE_BLOCK_SHARE = 0.75  # of the registers, for the sums of a tile of one block: of more, LLVM spills some
FEW_SUMS = 12  # of a tile, on double-pumped processors, whose stores the next tile's multiply-adds hide
FLOAT32 = np.dtype(np.float32)
MOST_TILES, MOST_TAPS = 24, 512
"""Different tiles of a row, and runs of taps of them all, that are written out: code for more takes seconds and
hundreds of MiB to compile, and some of it ends LLVM."""


@dataclass(frozen=True)
class RowWindow:
    """A window along one dimension. Transposed: the input is spread by `stride`, the output is dense."""

    extent: int
    kernel: int
    stride: int
    dilation: int
    pad: int
    transposed: bool = False

    def shape_class(self, lo: int, hi: int) -> tuple[int, int, int, int]:
        """(width, phase, first, beyond): output pixel p reads tap k where first ≤ rel(p, k), and from there to the last
        of all `relative` are at least `beyond`."""
        width = hi - lo
        phase = (lo + self.pad) % self.stride if self.transposed else 0
        (least, most), base = self.known(width, phase), self.base(lo)
        last = min(most, max(self.extent - 1 - base, least - 1))
        return width, phase, max(least, min(-base, most + 1)), most - last

    def known(self, width: int, phase: int) -> tuple[int, int]:
        """The least and the greatest of all `relative` in a box of this width."""
        rels = [
            self.relative(p, k, phase)
            for p in {0, *range(max(0, width - self.stride), width)}
            for k in (0, self.kernel - 1)
        ]
        if self.transposed:
            rels += [self.relative(p, k, phase) for p in range(min(width, self.stride)) for k in range(self.kernel)]
        found = [r for r in rels if r is not None] or [0]
        return min(found), max(found)

    def base(self, lo: int) -> int:
        """Input index that relative index 0 stands for, in a box that begins at `lo`."""
        return (lo + self.pad) // self.stride if self.transposed else lo * self.stride - self.pad

    def relative(self, p: int, k: int, phase: int = 0) -> int | None:
        """Input index of tap `k` of output pixel `p` of a box, relative to `base`; None where it is between pixels."""
        if not self.transposed:
            return p * self.stride + k * self.dilation
        quotient, rest = divmod(phase + p - k * self.dilation, self.stride)
        return quotient if rest == 0 else None

    def read(self, lo: int, hi: int) -> tuple[float, float]:
        """The shares of the inputs and of the taps that outputs from `lo` to `hi` read; not of a transposed window."""
        starts = [lo * self.stride - self.pad + k * self.dilation for k in range(self.kernel)]
        reached = [range(start, start + (hi - lo) * self.stride, self.stride) for start in starts]
        found = [{i for i in each if 0 <= i < self.extent} for each in reached]
        return len(set().union(*found)) / self.extent, sum(map(bool, found)) / self.kernel

    def is_long(self, width: int, most: int, tile_code: int, tap_code: int | None) -> bool:
        """Whether the tiles of a row of `width` outputs, of at most `most` pixels, are too much code: `tile_code` is
        that of a tile, `tap_code` that of a tap, or None where runs of equal taps are one loop
        (`PixelTile.tap_runs`)."""
        kinds = max(1, min(self.stride, width)) if self.transposed else 1
        tiles = self._edge(width) // most + kinds
        taps = -(-self.kernel // self.stride) if self.transposed else self.kernel
        runs = min(taps, 2 * most) if tap_code is None else taps * tap_code
        return tiles * tile_code > MOST_TILES or tiles * runs > MOST_TAPS

    def _edge(self, width: int) -> int:
        """Outputs of a row whose windows reach beyond the tensor, about."""
        span = (self.kernel - 1) * self.dilation
        if self.transposed:
            before, behind = span - self.pad, width + self.pad - (self.extent - 1) * self.stride
        else:
            before = -(-self.pad // self.stride)
            behind = -((self.extent - 1 - span - (width - 1) * self.stride + self.pad) // self.stride)
        return min(width, max(0, before) + max(0, behind))


@dataclass(frozen=True)
class PixelTile:
    """`count` output pixels, `step` apart; taps[k][t] is the input index of tap k of pixel t, None to skip.
    Where taps are walked (`live_taps.py`), there are none here."""

    step: int
    count: int
    taps: tuple[tuple[int | None, ...], ...]

    def tap_runs(self) -> list[TapRun]:
        """The taps that fall on the tensor anywhere, equal ones gathered."""
        runs: list[TapRun] = []
        for k, rels in enumerate(self.taps):
            if any(r is not None for r in rels) and not (runs and runs[-1].extend(k, rels)):
                runs.append(TapRun(k, rels))
        return runs


@dataclass
class TapRun:
    """`count` taps, `step` apart, of the same pixels; each reads `advance` input pixels after the one before."""

    first: int
    rels: tuple[int | None, ...]
    count: int = 1
    step: int = 0
    advance: int = 0

    def extend(self, k: int, rels: tuple[int | None, ...]) -> bool:
        """Adds tap `k` if it continues the run."""
        if [r is None for r in rels] != [r is None for r in self.rels]:
            return False
        last = self.first + (self.count - 1) * self.step
        moves = {b - a for a, b in zip(self.rels, rels, strict=True) if a is not None and b is not None}
        step, advance = k - last, moves.pop() - (self.count - 1) * self.advance
        if moves or (self.count > 1 and (step, advance) != (self.step, self.advance)):
            return False
        self.count, self.step, self.advance = self.count + 1, step, advance
        return True


@dataclass(frozen=True)
class RepeatedTiles:
    """`repeat` equal tiles, each `out_step` output and `in_step` input pixels after the one before. The first one's
    first output is `start`; its taps count from `in_start`, relative to the row's base. Where there is a `latest`, no
    tile begins behind it, and no taps count from behind `in_latest`."""

    tile: PixelTile
    start: int | Size
    in_start: int | Size
    repeat: int | Size
    out_step: int
    in_step: int
    latest: int | Size | None = None
    in_latest: int | Size | None = None


def tile_runs(window: RowWindow, shape_class: tuple[int | Size, int, int, int], most: int) -> list[RepeatedTiles]:
    """The tiles of at most `most` pixels that cover a box's width, equal neighbours gathered into runs. The width may
    be a size; then starts and repetitions are sizes too."""
    return [run for row, outputs in tiled_rows(window, shape_class) for run in row.runs(outputs, most)]


def tiled_rows(
    window: RowWindow, shape_class: tuple[int | Size, int, int, int]
) -> Iterator[tuple[TiledRow, int | Size]]:
    """The rows that a box's width consists of, one for each residue of a transposed window, and their outputs."""
    width, phase, first, beyond = shape_class
    if not width:
        return
    step = window.stride if window.transposed else 1
    like = int(width % step) + step if step > 1 and width >= step else 1 if step == 1 else int(width)
    for residue in range(int(min(step, width))):
        offsets = tuple(window.relative(residue, k, phase) for k in range(window.kernel))
        last = window.known(like, phase)[1] - int(_outputs(like, residue, step)) + 1 - beyond
        row = TiledRow(offsets, 1 if window.transposed else window.stride, step, residue, first, last)
        yield row, _outputs(width, residue, step)


def _outputs(width: int | Size, residue: int, step: int) -> int | Size:
    """How many of `width` outputs there are of a residue."""
    return -(-(width - residue) // step)


@dataclass(frozen=True)
class TiledRow:
    """Every `step`-th output of a row, `residue` the first. Output number p reads input p·advance + offsets[k] by tap
    k, where that is no less than `first`, and the last output those that are no more than `last` beyond p·advance."""

    offsets: tuple[int | None, ...]
    advance: int
    step: int
    residue: int
    first: int
    last: int

    @property
    def left(self) -> int:
        """So many outputs at most lack taps in front."""
        return max(0, -(-(self.first - min(self._known)) // self.advance))

    @property
    def right(self) -> int:
        """So many lack taps at the end."""
        return max(0, -(-(max(self._known) - self.last) // self.advance))

    @property
    def _known(self) -> list[int]:
        return [o for o in self.offsets if o is not None] or [self.first]

    def runs(self, outputs: int | Size, most: int) -> list[RepeatedTiles]:
        """Tiles of as many pixels as go, then tiles with a pixel less; those at the ends are runs of their own."""
        count = -(-outputs // most)
        long = int(-(-outputs // count))
        short = count * long - outputs
        last = long - 1 if self.right and short > 0 else long
        before, behind = -(-self.left // long), -(-self.right // max(1, last))
        many, more = count - short - before, short
        many, more = (many - behind, more) if last == long else (many, more - behind)
        if last == 0 or many < 0 or more < 0:  # tiles that meet both ends
            return self.single_tiles(int(outputs), int(count), long)
        runs = [self.run(k * long, long) for k in range(before)]
        runs += [self.run(before * long, long, many), self.run((count - short) * long, long - 1, more)]
        runs += [self.run(outputs - k * last, last, end=(k - 1) * last) for k in range(behind, 0, -1)]
        return [run for run in runs if run.tile.count and not (isinstance(run.repeat, int) and run.repeat == 0)]

    def run(self, start: int | Size, count: int, repeat: int | Size = 1, end: int | None = None) -> RepeatedTiles:
        """Tiles of `count` pixels from output number `start` on. Outputs lack taps near a `start` that is an integer,
        and near the end of the row, which is `end` outputs behind the tile where that is given."""
        taps = tuple(tuple(self.tap(o, t, start, count, end) for t in range(count)) for o in self.offsets)
        each, onwards = count * self.step, count * self.advance
        tile = PixelTile(self.step, count, taps)
        return RepeatedTiles(tile, self.residue + start * self.step, start * self.advance, repeat, each, onwards)

    def tap(self, offset: int | None, t: int, start: int | Size, count: int, end: int | None) -> int | None:
        """What pixel `t` of such a tile reads by a tap, counted from where the tile begins."""
        if offset is None or (isinstance(start, int) and (start + t) * self.advance + offset < self.first):
            return None
        if end is not None and offset - (end + count - 1 - t) * self.advance > self.last:
            return None
        return t * self.advance + offset

    def single_tiles(self, outputs: int, count: int, long: int) -> list[RepeatedTiles]:
        """The same tiles, each with what it lacks at both ends; equal neighbours are one run."""
        short = count * long - outputs
        runs, start = list[RepeatedTiles](), 0
        for part in [long] * (count - short) + [long - 1] * short:
            run = self.run(start, part, 1, outputs - start - part)
            if runs and runs[-1].tile == run.tile:
                runs[-1] = replace(runs[-1], repeat=runs[-1].repeat + 1)
            else:
                runs.append(run)
            start += part
        return runs


def sizes(pixels: int, most: int) -> list[int]:
    """Tile sizes of at most `most`, as equal as they can be, the short one last."""
    size = -(-pixels // -(-pixels // most))
    return [size] * (pixels // size) + ([pixels % size] if pixels % size else [])


def common_cut(boxes: Boxes, dim: int, group: int, lanes: int) -> int:
    """What the blocks of `lanes` channels at which boxes begin and end, counted from their group's, are multiples of.

    0 where `dim` is cut between groups of `group` channels alone. Boxes reach over blocks that they hold part of.
    """
    lo, hi = (ends[:, dim] % max(group, 1) for ends in (boxes.lo, boxes.hi))
    return math.gcd(*(int(np.gcd.reduce(cuts, initial=0)) for cuts in (lo // lanes, -(-hi // lanes))))


@lru_cache(maxsize=1 << 12)
def choose_tile(
    width: int, blocks: int, align: int, isa: Isa, dtype: np.dtype = FLOAT32, parts: int = 1, limit: int = WIDEST_ROW
) -> tuple[int, int]:
    """(OB, T): blocks of output channels and most pixels of a register tile, at most `limit`, for rows of `width`
    pixels.

    Cycles per input channel: a multiply-add unit does two vectors a cycle, and so do the load ports, which bring OB
    weights and T pixels; the weights come from L2. Under eight accumulators the latency of the additions shows.
    `align` is that of `common_cut`; OB must divide it. A tile holds as many blocks of each of `parts` parts.

    A double-pumped processor does one a cycle, and has loads to spare: multiply-adds of one block that take their pixel
    from memory run at its peak, pixels loaded for several blocks do not quite.
    """
    width = max(1, min(width, WIDEST_ROW))
    registers = isa.registers // 2 if dtype.itemsize == 8 else isa.registers
    alone = int(ONE_BLOCK_SHARE * registers)
    best = None
    for ob in sorted({parts * n for n in (1, 2, 3, 4, 6, 8)}):
        most = min((registers - ob - 2) // ob, limit, max(1, FEW_SUMS // ob) if isa.double_pumped else alone)
        if most < 1 or ob > max(blocks, 1) or (align and align % ob):
            continue
        widths = Counter(sizes(width, most))
        heights = Counter(_parts(blocks, ob))
        kinds = product(heights.items(), widths.items())
        cost = sum(m * n * tile_cycles(o, t, isa.lanes, isa.double_pumped) for (o, m), (t, n) in kinds)
        if best is None or cost < best[0] - 1e-9:
            best = cost, ob, most
    assert best is not None
    return best[1], best[2]


def _parts(blocks: int, ob: int) -> list[int]:
    """Blocks of each tile of channels."""
    return [ob] * (blocks // ob) + ([blocks % ob] if blocks % ob else [])


def tile_cycles(ob: int, t: int, lanes: int, double_pumped: bool) -> float:
    """Cycles of a tile per input channel, as `choose_tile` has them."""
    weights = ob * FLOAT32.itemsize * lanes / L2_BYTES_PER_CYCLE
    if double_pumped:
        return max(ob * t, weights, 6.0) + 0.05 * ob + (0.1 * t if ob > 1 else 0.0)
    return max(ob * t / 2, (ob + t) / 2, weights, 4.0) + 0.05 * (ob + t)
