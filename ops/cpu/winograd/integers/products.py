"""Products of words of two 16-bit integers, of weights that are transformed for each group of tiles."""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.products.words.int16_dot import Int16Dot
from brickrt.ops.cpu.winograd.integers.frame import IntegerFrame
from brickrt.ops.cpu.winograd.integers.transforms import weight_rows
from brickrt.ops.cpu.winograd.raw_products import RowProducts


class IntegerProducts(RowProducts):
    """Emits weight transforms and products."""

    frame: IntegerFrame

    def __init__(self, frame: IntegerFrame) -> None:
        super().__init__(frame)
        self.dot = Int16Dot.of(frame.f, frame.k.isa)

    def transform(self, row: int, which: tuple[Index, Index, Index], count: int, to: ir.Value) -> None:
        """See `RowProducts`; a channel is a pair of them."""
        f, k, frame, (_, down, across) = self.f, self.k, self.frame, self.k.axes
        block, channel, tap = which
        start = frame.raw_at(block, channel, f.mul(tap, down.r * across.r))
        weights = f.address(frame.raw_weights, start, k.raw_type)
        width = k.lanes * k.step_channels
        for j in range(count):
            places = [(n * k.ob + j) * width for n in range(down.r * across.r)]
            w = [f.b.sext(f.load(weights, at, k.raw_type, width), frame.halves) for at in places]
            columns = [weight_rows(f, w[x :: across.r], down) for x in range(across.r)]
            for x, value in enumerate(weight_rows(f, [column[row] for column in columns], across)):
                f.store(f.b.bitcast(value, frame.kind), to, x * k.row_plane + j * k.lanes, frame.dtype, k.lanes)
