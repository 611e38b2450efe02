"""Register tiles along the innermost dimension, computed before any code is emitted.

A convolution keeps OB blocks of output channels for T output pixels of one row in registers. Which taps of the window
fall on the tensor depends on the pixel; since a kernel knows its boxes' width and how they meet the tensor's edges,
that is decided here, and the machine code has no test for it.

            x = 0                          width
    tiles   |--edge--|--inner--|--inner--|-edge-|      one `RepeatedTiles` each; the two inner ones are one run of two
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import product

import numpy as np

from brickrt.ops.cpu.isa import Isa
from brickrt.ops.types import Boxes

L2_BYTES_PER_CYCLE = 20  # what streaming weights out of L2 reaches
VECTOR_BYTES = 64
WIDEST = 512  # pixels of a row; longer ones are cut in tiles like it
FEW = 12  # sums of a tile, on double-pumped processors, whose stores the next tile's multiply-adds hide
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
        """(width, phase, first, last): output pixel p reads tap k where first ≤ rel(p, k) ≤ last."""
        width = hi - lo
        phase = (lo + self.pad) % self.stride if self.transposed else 0
        rels = [
            self.relative(p, k, phase)
            for p in {0, *range(max(0, width - self.stride), width)}
            for k in (0, self.kernel - 1)
        ]
        if self.transposed:
            rels += [self.relative(p, k, phase) for p in range(min(width, self.stride)) for k in range(self.kernel)]
        known = [r for r in rels if r is not None] or [0]
        base = self.base(lo)
        return (
            width,
            phase,
            max(min(known), min(-base, max(known) + 1)),
            min(max(known), max(self.extent - 1 - base, min(known) - 1)),
        )

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
    """`count` output pixels, `step` apart; taps[k][t] is the relative input index of tap k of pixel t, None to skip."""

    start: int
    step: int
    count: int
    taps: tuple[tuple[int | None, ...], ...]

    @property
    def anchor(self) -> int:
        """The smallest input index, from which the others are counted when tiles are compared."""
        return min((r for row in self.taps for r in row if r is not None), default=0)

    def tap_runs(self) -> list[TapRun]:
        """The taps that fall on the tensor anywhere, equal ones gathered."""
        runs: list[TapRun] = []
        for k, rels in enumerate(self.taps):
            if any(r is not None for r in rels) and not (runs and runs[-1].extend(k, rels)):
                runs.append(TapRun(k, rels))
        return runs

    def shifted(self) -> tuple:
        """The tile counted from its anchor: equal for tiles that one code computes."""
        base = self.anchor
        return self.step, self.count, tuple(tuple(None if r is None else r - base for r in row) for row in self.taps)


PIXEL = PixelTile(0, 1, 1, ())
"""One pixel whose taps are not known: they are walked (`live_taps.py`)."""


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
    """`repeat` equal tiles, each `out_step` output and `in_step` input pixels after the one before."""

    tile: PixelTile
    repeat: int
    out_step: int
    in_step: int


def tile_runs(window: RowWindow, shape_class: tuple[int, int, int, int], most: int) -> list[RepeatedTiles]:
    """The tiles of at most `most` pixels that cover a box's width, equal neighbours gathered into runs."""
    width, phase, first, last = shape_class
    step = window.stride if window.transposed else 1
    runs: list[RepeatedTiles] = []
    for residue in range(min(step, width)):
        pixels = list(range(residue, width, step))
        for part in split_evenly(pixels, most):
            if not (runs and _continues(runs, window, part, first, last)):
                _append(runs, _tile(window, part, step, phase, first, last))
    return runs


def sizes(pixels: int, most: int) -> list[int]:
    """Tile sizes of at most `most`, as equal as they can be, the short one last."""
    size = -(-pixels // -(-pixels // most))
    return [size] * (pixels // size) + ([pixels % size] if pixels % size else [])


def split_evenly(pixels: list[int], most: int) -> list[list[int]]:
    """The pixels in parts of these sizes."""
    size = sizes(len(pixels), most)[0]
    return [pixels[k : k + size] for k in range(0, len(pixels), size)]


def _tile(window: RowWindow, pixels: list[int], step: int, phase: int, first: int, last: int) -> PixelTile:
    def tap(p: int, k: int) -> int | None:
        r = window.relative(p, k, phase)
        return r if r is not None and first <= r <= last else None

    return PixelTile(
        pixels[0], step, len(pixels), tuple(tuple(tap(p, k) for p in pixels) for k in range(window.kernel))
    )


def _continues(runs: list[RepeatedTiles], window: RowWindow, pixels: list[int], first: int, last: int) -> bool:
    """Lengthens the last run by a tile of these pixels, where it is seen without its taps that both are equal: all
    windows lie on the tensor."""
    run, tile = runs[-1], runs[-1].tile
    inner = first <= tile.start * window.stride
    inner = inner and pixels[-1] * window.stride + (window.kernel - 1) * window.dilation <= last
    if window.transposed or not inner or tile.count != len(pixels):
        return False
    step = tile.count  # such tiles lie side by side
    runs[-1] = RepeatedTiles(tile, run.repeat + 1, step, step * window.stride)
    return True


def _append(runs: list[RepeatedTiles], tile: PixelTile) -> None:
    if runs and runs[-1].tile.shifted() == tile.shifted():
        run = runs[-1]
        out_step = (tile.start - run.tile.start) // run.repeat
        in_step, rest = divmod(tile.anchor - run.tile.anchor, run.repeat)
        even = rest == 0 and (run.repeat == 1 or (out_step, in_step) == (run.out_step, run.in_step))
        if even:
            runs[-1] = RepeatedTiles(run.tile, run.repeat + 1, out_step, in_step)
            return
    runs.append(RepeatedTiles(tile, 1, 0, 0))


def common_cut(boxes: Boxes, dim: int, group: int, lanes: int) -> int:
    """What the blocks of `lanes` channels at which boxes begin and end, counted from their group's, are multiples of.

    0 where `dim` is cut between groups of `group` channels alone. Boxes reach over blocks that they hold part of.
    """
    lo, hi = (np.unique(ends[:, dim] % max(group, 1)) for ends in (boxes.lo, boxes.hi))
    return math.gcd(*(lo // lanes).tolist(), *(-(-hi // lanes)).tolist())


def choose_tile(
    width: int, blocks: int, align: int, isa: Isa, dtype: np.dtype = FLOAT32, parts: int = 1
) -> tuple[int, int]:
    """(OB, T): blocks of output channels and most pixels of a register tile, for rows of `width` pixels.

    Cycles per input channel: a multiply-add unit does two vectors a cycle, and so do the load ports, which bring OB
    weights and T pixels; the weights come from L2. Under eight accumulators the latency of the additions shows.
    `align` is that of `common_cut`; OB must divide it. A tile holds as many blocks of each of `parts` parts.

    A double-pumped processor does one a cycle, and has loads to spare: multiply-adds of one block that take their pixel
    from memory run at its peak, pixels loaded for several blocks do not quite.
    """
    width = max(1, min(width, WIDEST))
    registers = isa.registers // 2 if dtype.itemsize == 8 else isa.registers
    best = None
    for ob in sorted({parts * n for n in (1, 2, 3, 4, 6, 8)}):
        most = min((registers - ob - 2) // ob, max(1, FEW // ob) if isa.double_pumped else 24)
        if most < 1 or ob > max(blocks, 1) or (align and align % ob):
            continue
        widths = Counter(sizes(width, most))
        heights = Counter(_parts(blocks, ob))
        kinds = product(heights.items(), widths.items())
        cost = sum(m * n * _cycles(o, t, isa.double_pumped) for (o, m), (t, n) in kinds)
        if best is None or cost < best[0] - 1e-9:
            best = cost, ob, most
    assert best is not None
    return best[1], best[2]


def _parts(blocks: int, ob: int) -> list[int]:
    """Blocks of each tile of channels."""
    return [ob] * (blocks // ob) + ([blocks % ob] if blocks % ob else [])


def _cycles(ob: int, t: int, double_pumped: bool) -> float:
    weights = ob * VECTOR_BYTES / L2_BYTES_PER_CYCLE
    if double_pumped:
        return max(ob * t, weights, 6.0) + 0.05 * ob + (0.1 * t if ob > 1 else 0.0)
    return max(ob * t / 2, (ob + t) / 2, weights, 4.0) + 0.05 * (ob + t)
