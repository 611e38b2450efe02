"""What some neighbouring points of a grid read: where, and with which weights."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I32, I64, Index, fill, vector
from brickrt.ops.cpu.host_loops import LANES
from brickrt.ops.cpu.sampling.channels_last import FLOAT32
from brickrt.ops.cpu.sampling.point_taps import Tap

INT32 = np.dtype(np.int32)


class TapTable:
    """What LANES points read: per choice of a tap of each axis, offsets and weights of all points side by side."""

    def __init__(self, f: FunctionEmitter, choices: int) -> None:
        self.f, self.choices = f, choices
        self._offsets, self._weights = (f.local(kind, count=choices * LANES) for kind in (I32, FLOAT))

    def fill(self, axes: Sequence[Sequence[Tap]], steps: Sequence[Index], factor: ir.Value | None = None) -> None:
        """Notes the taps of each axis, along which pixels are so many elements apart; each point's weights times its
        factor, where points have any."""
        f = self.f
        wide = [f.splat(f.b.trunc(f.value(step), I32), LANES) for step in steps]
        for choice, taps in enumerate(product(*axes)):
            offset, weight = fill(vector(I32, LANES), 0), factor
            for (pixel, share), step in zip(taps, wide, strict=True):
                offset = f.b.add(offset, f.b.mul(pixel, step))
                weight = share if weight is None else f.b.fmul(weight, share)
            f.store(offset, self._offsets, choice * LANES, INT32, LANES)
            f.store(weight, self._weights, choice * LANES, FLOAT32, LANES)

    def offset(self, choice: Index, lane: Index) -> ir.Value:
        """Where a point has a pixel, in elements from the first."""
        f = self.f
        return f.b.sext(f.load(self._offsets, f.add(f.mul(choice, LANES), lane), INT32), I64)

    def weight(self, choice: Index, lane: Index) -> ir.Value:
        """The weight of that pixel."""
        return self.f.load(self._weights, self.f.add(self.f.mul(choice, LANES), lane), FLOAT32)

    def weights(self, choice: Index) -> ir.Value:
        """Those of all points."""
        return self.f.load(self._weights, self.f.mul(choice, LANES), FLOAT32, LANES)


def adjacent_coordinates(f: FunctionEmitter, base: ir.Value, entry: Index, left: Index, axes: int) -> list[ir.Value]:
    """Each axis' coordinates of LANES points, of which so many are `left`, innermost axis first. Those of a point lie
    side by side, and so do points, from element `entry` on."""
    floats, lines = f.mul(left, axes), []
    for k in range(axes):
        mask = f.tail_mask(f.sub(floats, k * LANES), LANES)
        lines.append(f.load(base, f.add(entry, k * LANES), FLOAT32, LANES, mask))
    return [_every(f, lines, axis) for axis in range(axes)]


def _every(f: FunctionEmitter, lines: Sequence[ir.Value], first: int) -> ir.Value:
    """Elements first, first + n, … of n vectors in a row."""
    total, n = lines[0], len(lines)
    for k in range(n):
        here = [first + n * lane - k * LANES for lane in range(LANES)]  # where in line k; before it they are taken
        kept = [lane if at < 0 else LANES + at if at < LANES else 0 for lane, at in enumerate(here)]
        total = f.shuffle(total, lines[k], kept)
    return total
