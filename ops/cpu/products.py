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
        unrolled, it is no faster, spills accumulators and compiles three times as long.
        """
        live = [t for t, offset in enumerate(offsets) if offset is not None]
        if not live:
            return
        unroll = channels if channels <= 4 else 1
        with self.f.loop(0, channels, unroll) as c:
            for s in range(unroll):
                self._step(pixels, offsets, live, stride, self.f.add(c, s), weight)

    def _step(
        self,
        pixels: ir.Value,
        offsets: Sequence[int | None],
        live: list[int],
        stride: Index,
        c: Index,
        weight: LoadWeight,
    ) -> None:
        f = self.f
        row = f.address(pixels, f.mul(c, stride), self.dtype)
        weights = [weight(c, j) for j in range(self.blocks)]
        for t in live:
            offset = offsets[t]
            assert offset is not None
            pixel = f.splat(f.load(row, offset, self.dtype), self.lanes)
            for j, w in enumerate(weights):
                f.set(self.places[j][t], f.fma(pixel, w, self.value(j, t)))
