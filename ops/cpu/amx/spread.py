"""Transposed convolutions whose windows do not overlap: a product of one pixel, whose columns are those of all taps.

stride 2:   input 0 1 2   →   output 00 11 22, the first of each pair by tap 0, the second by tap 1
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.amx.sizes import LANES
from brickrt.ops.cpu.amx.views import BlockedImages
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I1, Index
from brickrt.ops.operators.conv import ConvTranspose
from brickrt.ops.types import Boxes


def cuts_windows(op: Op, boxes: Boxes, extents: Sequence[int]) -> bool:
    """Whether boxes begin or end between outputs of one input pixel."""
    if not isinstance(op, ConvTranspose):
        return False
    steps = np.asarray(op.strides)
    ends = boxes.hi[:, 2:] % steps * (boxes.hi[:, 2:] < np.asarray(extents))
    return bool(np.any(boxes.lo[:, 2:] % steps) or np.any(ends))


class SpreadView(BlockedImages):
    """Pixels of the input, and as many channels of the output as it has, for each tap: whole vectors."""

    op: ConvTranspose

    @property
    def channels_each(self) -> int:
        """Channels of a tap, up to whole vectors."""
        return -(-self.out.shape[1] // LANES) * LANES

    @property
    def columns(self) -> int:
        """Channels of all taps."""
        return math.prod(self.op.kernel) * self.channels_each

    @property
    def steps_out(self) -> Sequence[int]:
        """From the outputs of a pixel to those of the next."""
        return self._three(self.op.strides, 1)

    @property
    def adjacent(self) -> bool:
        """Outputs of one tap lie a stride apart."""
        return False

    def pixels(self, f: FunctionEmitter) -> list[tuple[Index, Index]]:
        """Pixels of the input that reach the box."""
        ranges = zip(super().pixels(f), self.steps_out, strict=True)
        return [(f.div(lo, step), f.div(f.add(hi, step - 1), step)) for (lo, hi), step in ranges]

    def channels(self, f: FunctionEmitter) -> tuple[Index, Index]:
        """All columns: what does not belong to the box is not stored."""
        return 0, self.columns

    def within(self, f: FunctionEmitter, channel: Index) -> Index:
        """Whether the box has channels of the vector."""
        lo, hi = f.box(1)
        channel = f.rem(channel, self.channels_each)
        return f.b.and_(
            f.b.icmp_signed("<", f.value(channel), hi), f.b.icmp_signed(">", f.value(f.add(channel, LANES)), lo)
        )

    def index(self, f: FunctionEmitter, batch: Sequence[Index], channel: Index, pixel: Sequence[Index]) -> list[Index]:
        """The output that a tap gives a pixel of the input."""
        tap, places = f.div(channel, self.channels_each), list[Index]()
        for at, step in reversed([*zip(pixel, self.steps_out, strict=True)]):
            places.insert(0, f.add(f.mul(at, step), f.rem(tap, step)))
            tap = f.div(tap, step)
        return super().index(f, batch, f.rem(channel, self.channels_each), places)

    def reached(self, f: FunctionEmitter, index: Sequence[Index]) -> Index:
        """Whether an output belongs to the box."""
        found = I1(1)
        for d in range(2, self.out.type.rank):
            lo, hi = f.box(d)
            at = f.value(index[d])
            found = f.b.and_(found, f.b.and_(f.b.icmp_signed(">=", at, lo), f.b.icmp_signed("<", at, hi)))
        return found
