"""How the weights of later register tiles are asked for at an even pace.

Tiles of pixels share a stream of weights. If the first of them asked for all that comes next, it would wait for memory,
and the others would leave that idle. So each asks for its share, of a chunk that lies a little further in the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I64, Index
from brickrt.ops.cpu.isa import AVX2_LANES, Isa
from brickrt.ops.cpu.products.conv_geometry import MOST_PIXELS
from brickrt.ops.cpu.products.register_tile import LINE, STEPS, PackedStream
from brickrt.ops.cpu.products.row_tiles import RepeatedTiles

CHUNK_BYTES = 16 << 10  # of a stream that pixels share while it is in L1
EVEN_BYTES = 32 << 10  # the same where chunks are equal, and rows that tiles read lie side by side
CHUNKS_AHEAD = 4  # between the one in use and the one asked for
FEWEST_STEPS = 128  # multiplications of an output from which on there are chunks
COPIED_TILES = 4  # tiles of pixels from which on weights are widened, or packed, once for all
WIDE_REQUEST = 2  # steps for a line, by vectors of 16 lanes: asked for in each, it would go through L2 many times
NARROW_REQUEST = 4  # the same by vectors of eight lanes, of which tiles have little time
LONG_STEPS = 1024  # the same whatever the pixels: of so many weights the first tile of pixels waits for long


def chunk_steps(vectors: int, nbytes: int, unit: int) -> int:
    """Steps of a chunk, of `vectors` vectors of `nbytes` each: whole units."""
    return unit * max(1, CHUNK_BYTES // (vectors * nbytes * unit))


def even_steps(steps: int, nbytes: int) -> int:
    """Steps of a chunk, of `nbytes` each: chunks are equal but for rounding."""
    chunks = -(-steps * nbytes // EVEN_BYTES)
    return -(-steps // chunks)


def share_chunks(isa: Isa, tile: tuple[int, int], pixels: int, steps: int) -> bool:
    """Whether `pixels` should share chunks of weights, which `steps` multiplications of an output each read: up to
    `MOST_PIXELS`, or any number where sums are long."""
    most = MOST_PIXELS if isa.paces_weights and steps < LONG_STEPS else pixels
    return bool(isa.shares_chunks and tile[1] < pixels <= most and steps >= FEWEST_STEPS)


class Pace:
    """Numbers the tiles that share weights: those of `runs` in each of `rows` rows, of `width` elements in a step."""

    def __init__(self, f: FunctionEmitter, width: int, runs: Sequence[RepeatedTiles], rows: Index = 1) -> None:
        self.f, self.width = f, width
        starts: list[Index] = [0]
        for run in runs:
            starts.append(f.add(starts[-1], run.repeat))
        self.starts, self.in_row = starts[:-1], starts[-1]
        tiles = f.value(f.mul(rows, self.in_row))
        self.each = f.b.add(f.b.sdiv(f.value(width - 1), tiles), f.value(1))

    def number(self, run: int, r: Index, row: Index = 0) -> Index:
        """The number of the tile that repetition `r` of a run is, in a row."""
        return self.f.add(self.f.mul(row, self.in_row), self.starts[run], r)

    def part_of(self, stream: PackedStream, start: Index, number: Index, steps: Index) -> PackedStream:
        """A stream from step `start` on, of a chunk of so many steps, whose sweep asks for a later chunk."""
        base = self.f.address(stream.base, self.f.mul(start, self.width), stream.dtype)
        return replace(stream, base=base, ask=self.asker(base, stream.dtype, number, steps, 0, CHUNKS_AHEAD))

    def asker(
        self, stream: ir.Value, dtype: np.dtype, number: Index, steps: Index, step: Index, chunks: int
    ) -> Callable[[Index, int], None]:
        """What emits the prefetches in steps of a sweep that begins with `step` of the `steps` of a chunk; `stream` is
        where the chunk begins, and what is asked for is so many `chunks` behind it."""
        f = self.f
        mine = f.add(f.mul(f.mul(number, steps), self.each), f.mul(steps, chunks * self.width))
        base = f.address(f.address(stream, mine, dtype), f.mul(step, self.each), dtype)
        return share_asker(f, base, self.each, dtype, narrow=STEPS)


def share_asker(
    f: FunctionEmitter, start: ir.Value, each: Index, dtype: np.dtype, narrow: int = NARROW_REQUEST
) -> Callable[[Index, int], None]:
    """What asks, in so many steps of a sweep from one on, for `each` elements of each of them, which lie from `start`
    on: for a line in every second step, in all steps where a step's share is more than half a line. By vectors of eight
    lanes one in `narrow` steps is all that there is time for."""
    wide = f.isa is None or f.isa.lanes != AVX2_LANES
    dense = f.b.icmp_signed(">", f.value(each), I64(LINE // (WIDE_REQUEST * dtype.itemsize))) if wide else None

    def ask(first: Index, steps: int) -> None:
        every = WIDE_REQUEST if wide else narrow
        request(range(0, steps, every), first)
        if dense is not None and steps > 1:
            with f.when(dense):
                request(range(1, steps, every), first)

    def request(places: range, first: Index) -> None:
        for n in places:
            f.prefetch(start, f.mul(f.add(first, n), each), dtype, near=False)

    return ask
