"""Which tiles of a Winograd convolution may be mixed: a first look at their inputs while these are transformed.

Minimal filtering rounds in proportion to the largest value that a tile reads, so an output errs in proportion to values
that it does not read itself. That is little unless an output of the tile reads only values 2**SPREAD times smaller than
the tile's largest, or a value is not finite.

    most  the greatest sum of squares of a channel's inputs
    least the outputs are gone through in groups: of the largest magnitudes of what all outputs of a group read, as far
          as it is sampled, the least

Where `most` exceeds `least` by too much, the tile is suspect: `tile_check.py` looks at what each output reads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import product
from typing import TypeAlias

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import FLOAT, I32, Index, vector, zeros
from brickrt.ops.cpu.emit.magnitudes import (
    BITS,
    FOUR,
    greater,
    greatest_lane,
    greatest_of_four,
    least_lane,
    lesser,
    magnitudes,
    may_mix,
    nothing,
)
from brickrt.ops.cpu.winograd.axes import Axis
from brickrt.ops.cpu.winograd.frame import WinogradFrame, WinogradTile

MANY_CHANNELS = 16  # of which one place tells about how large inputs are
Load: TypeAlias = Callable[[Index, int], ir.Value]


class Suspects:
    """The flags int32[plane of the ring][tile of the group], not 0 for a suspect tile, behind whether any was suspect
    in the group so far; in the worker's scratch."""

    def __init__(self, frame: WinogradFrame) -> None:
        self.frame, self.f = frame, frame.f
        self.always = frame.flag()  # not 0: weights that must not be transformed
        self.found = self.f.address(frame.v, frame.k.suspects_at, frame.dtype)
        self.flags = self.f.address(self.found, frame.k.lanes, BITS)

    def begin(self) -> None:
        """Before a group's first tile."""
        self.f.store(self.always, self.found, 0, BITS)

    def any(self) -> ir.Value:
        """Whether one was suspect."""
        return self.f.b.icmp_signed("!=", self.f.load(self.found, 0, BITS), I32(0))

    def at(self, slot: Index, tile: WinogradTile) -> Index:
        """Where the flag of a tile in a plane of the ring lies."""
        k = self.frame.k
        return self.f.add(self.f.mul(slot, k.room[0]), self.f.mul(tile.block, k.t), tile.place)

    def note(self, at: Index, suspect: ir.Value) -> None:
        """Keeps whether a tile is suspect."""
        f, flag = self.f, self.f.b.zext(suspect, I32)
        f.store(flag, self.flags, at, BITS)
        f.store(f.b.or_(f.load(self.found, 0, BITS), flag), self.found, 0, BITS)


def sampled(axis: Axis, channels: int) -> list[range]:
    """For each group of a tile's outputs along an axis, places that all of them read: one where there are many channels
    at each, else about half of what an output reads."""
    if channels >= MANY_CHANNELS:
        return [range(first + axis.taps - 1, first + axis.taps) for first in range(0, axis.m, axis.taps)]
    group = -(-axis.taps // 2)
    return [range(min(first + group, axis.m) - 1, first + axis.taps) for first in range(0, axis.m, group)]


class TileRange:
    """Emits the first look at one tile in one plane, vector by vector of channels."""

    def __init__(self, frame: WinogradFrame) -> None:
        self.k, self.f = frame.k, frame.f
        _, self.down, self.across = frame.k.axes
        sides = (sampled(axis, frame.k.ins[0].shape[1]) for axis in (self.down, self.across))
        self.places = [list(product(*ranges)) for ranges in product(*sides)]
        self.most = self.f.variable(nothing(self.k.lanes))
        self.samples = [self.f.variable(nothing(self.k.lanes)) for _ in self.places]

    def look(self, load: Load, kept: ir.Value, sampled: ir.Value) -> None:
        """The n×n vectors that `load` gives by row and column, whose lanes `kept` are channels. Lanes `sampled` are of
        inputs that every output reads which reads their place.

        The vectors are loaded again, in a loop of its own: in the midst of a transform, sums make LLVM spill it.
        """
        f = self.f
        sums = [f.variable(zeros(vector(FLOAT, self.k.lanes))) for _ in range(self.across.n)]
        with f.loop(0, self.down.n) as row:
            for column, total in enumerate(sums):
                value = load(row, column)
                f.change(total, f.fma(value, value, f.read(total)))
        total = reduce(f.b.fadd, map(f.read, sums))
        f.change(self.most, greater(f, f.read(self.most), magnitudes(f, total, kept)))
        for sample, places in zip(self.samples, self.places, strict=True):
            for place in places:
                f.change(sample, greater(f, f.read(sample), magnitudes(f, load(*place), sampled)))

    def suspect(self) -> ir.Value:
        """Whether the tile is; a comparison with NaN does not hold."""
        f, found = self.f, [self.f.read(each) for each in self.samples]
        found += found[:1] * (-len(found) % FOUR)
        fours = [greatest_of_four(f, found[n : n + FOUR], self.k.lanes) for n in range(0, len(found), FOUR)]
        least = fours[0]
        for four in fours[1:]:
            least = lesser(f, least, four)
        low = least_lane(f, least)
        least_square = f.b.bitcast(f.b.fmul(*[f.b.bitcast(low, FLOAT)] * 2), I32)
        return f.b.not_(may_mix(f, self.greatest(), least_square))

    def greatest(self) -> ir.Value:
        """The bits of the greatest sum of squares of a channel's inputs."""
        return greatest_lane(self.f, self.f.read(self.most))
