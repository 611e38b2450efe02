"""Products of words of two 16-bit integers, of weights that are transformed for each group of tiles."""

from __future__ import annotations

from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.products.words.int16_dot import Int16Dot
from brickrt.ops.cpu.winograd.integers.frame import IntegerFrame
from brickrt.ops.cpu.winograd.integers.transforms import weight_rows
from brickrt.ops.cpu.winograd.raw_products import RawProducts


class IntegerProducts(RawProducts):
    """Emits weight transforms and products."""

    frame: IntegerFrame

    def __init__(self, frame: IntegerFrame) -> None:
        super().__init__(frame)
        self.dot = Int16Dot.of(frame.f, frame.k.isa)

    def transform(self, block: Index, count: int, tap: Index, channel: Index, c: Index) -> None:
        """G w Gᵀ of a pair of channels of the input, the `c`-th of its chunk."""
        f, k, frame, (_, down, across) = self.f, self.k, self.frame, self.k.axes
        made = f.address(self.chunk_weights, f.mul(c, k.ob * k.lanes), frame.dtype)
        start = frame.raw_at(block, channel, f.mul(tap, down.r * across.r))
        weights = f.address(frame.raw_weights, start, k.raw_type)
        width = k.lanes * k.step_channels
        for j in range(count):
            places = [(n * k.ob + j) * width for n in range(down.r * across.r)]
            w = [f.b.sext(f.load(weights, at, k.raw_type, width), frame.halves) for at in places]
            columns = [weight_rows(f, w[x :: across.r], down) for x in range(across.r)]
            for y in range(down.n):
                for x, value in enumerate(weight_rows(f, [column[y] for column in columns], across)):
                    at = (y * across.n + x) * k.chunk_plane + j * k.lanes
                    f.store(f.b.bitcast(value, frame.kind), made, at, frame.dtype, k.lanes)
