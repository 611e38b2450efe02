"""The inner product that convolutions and matrix products share: a register tile swept over input channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit import Fn, Index, register_type, vector

LoadWeight = Callable[[Index, int], ir.Value]  # (channel, block of the tile) → vector of output channels


@dataclass(frozen=True)
class Accumulators:
    """`blocks` x `pixels` vectors on the stack, which LLVM turns into registers."""

    f: Fn
    blocks: int
    pixels: int
    dtype: np.dtype
    lanes: int
    places: tuple[tuple[ir.Value, ...], ...]

    @staticmethod
    def create(f: Fn, initial: Sequence[ir.Value], pixels: int, dtype: np.dtype, lanes: int) -> Accumulators:
        """One row of accumulators per value in `initial` (the bias of each block of channels)."""
        kind = vector(register_type(dtype), lanes)
        places = tuple(tuple(f.local(kind, value) for _ in range(pixels)) for value in initial)
        return Accumulators(f, len(initial), pixels, dtype, lanes, places)

    @property
    def kind(self) -> ir.Type:
        return vector(register_type(self.dtype), self.lanes)

    def value(self, block: int, pixel: int) -> ir.Value:
        return self.f.get(self.places[block][pixel], self.kind)

    def multiply_add(
        self, pixels: ir.Value, offsets: Sequence[int | None], stride: Index, channels: int, weight: LoadWeight
    ) -> None:
        """acc[j][t] += pixels[offsets[t] + channel*stride] * weight(channel, j), for all channels.

        `offsets` are constants; None leaves a pixel out. A channel of a tile is work enough for one step of the loop:
        unrolled, even three of them, it spills accumulators and compiles several times as long.
        """
        f = self.f
        live = [(t, offset) for t, offset in enumerate(offsets) if offset is not None]
        with f.loop(0, channels) as c:
            row = f.address(pixels, f.mul(c, stride), self.dtype)
            weights = [weight(c, j) for j in range(self.blocks)]
            for t, offset in live:
                pixel = f.splat(f.load(row, offset, self.dtype), self.lanes)
                for j, w in enumerate(weights):
                    f.set(self.places[j][t], f.fma(pixel, w, self.value(j, t)))
