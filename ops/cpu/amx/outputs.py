"""The outputs of a group of tiles: sums from the workspace, bias, epilogue, stores."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from brickrt.ops.cpu.amx.again import Again
from brickrt.ops.cpu.amx.gather import BYTE, Chunk
from brickrt.ops.cpu.amx.scheme import BLOCKS, PIXELS, AmxScheme
from brickrt.ops.cpu.amx.sizes import LANES, ROW_BYTES
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I64, Index
from brickrt.ops.cpu.operands.epilogue import offset_of

TOGETHER = 4  # outputs that share what their addresses take


class Outputs:
    """Emits what follows the products. Sums lie in the workspace: [pixel][block][lanes]."""

    def __init__(self, kernel: AmxScheme, f: FunctionEmitter, work: ir.Value) -> None:
        self.k, self.f, self.work = kernel, f, work
        self.out = f.pointer(0)
        self.bias = f.pointer(3) if kernel.op.bias else None
        self.epilogue = kernel.epilogue.bind(f)
        self.bounds = kernel.view.channels(f)
        self.row, self.column = f.local(I64), f.local(I64)
        self.again = Again(kernel, f) if kernel.factors.parts > 1 else None

    def begin(self, chunk: Chunk, block: Index, blocks: int) -> None:
        """A new tile of output channels, from block `block` on: its pixels come in order."""
        f, k = self.f, self.k
        self.chunk, self.blocks = chunk, [f.mul(f.add(block, j), k.lanes) for j in range(blocks)]
        self.biases = None
        if self.bias is not None:
            self.biases = [f.load(self.bias, at, k.ins[2].dtype, k.lanes) for at in self.blocks]
        lo, hi = self.bounds
        within = [
            f.b.and_(
                f.b.icmp_signed("<", f.value(at), hi),
                f.b.icmp_signed(">", f.value(f.add(at, k.lanes)), lo),
            )
            for at in self.blocks
        ]
        self.within = within
        self.masks = [self.mask(at) for at in self.blocks] if k.ragged else [None] * blocks
        f.set(self.row, f.value(0))
        f.set(self.column, f.value(0))

    def mask(self, channel: Index) -> ir.Value:
        """The lanes from `channel` on that belong to the box."""
        f, (lo, hi) = self.f, self.bounds
        before = f.tail_mask(f.sub(lo, channel), LANES)
        return f.b.and_(f.tail_mask(f.sub(hi, channel), LANES), f.b.not_(before))

    def sums(self, pixel: Index, block: int) -> ir.Value:
        """Where the sums of a pixel lie."""
        f = self.f
        return f.address(self.work, f.add(f.mul(pixel, BLOCKS * ROW_BYTES), block * ROW_BYTES), BYTE)

    def finish(self, count: Index) -> None:
        """The outputs of the next `count` pixels of a plane: those beyond the columns of a chunk are none."""
        f, chunk = self.f, self.chunk
        done = f.local(I64)
        f.set(done, f.value(0))
        with f.loop(0, PIXELS):  # a row of outputs each
            number, row, column = f.get(done, I64), f.get(self.row, I64), f.get(self.column, I64)
            with f.when(f.b.icmp_signed("<", number, f.value(count))):
                left = f.sub(count, number)
                outputs = f.maximum(0, f.minimum(left, f.sub(chunk.columns, column)))
                self.run(number, outputs, row, column)
                steps = f.value(f.minimum(left, f.sub(chunk.width, column)))
                ends = f.b.icmp_signed("==", f.b.add(column, steps), f.value(chunk.width))
                f.set(done, f.b.add(number, steps))
                f.set(self.column, f.b.select(ends, I64(0), f.b.add(column, steps)))
                f.set(self.row, f.b.select(ends, f.b.add(row, I64(1)), row))

    def run(self, number: Index, count: Index, row: Index, column: Index) -> None:
        """Outputs that lie side by side, some at a time."""
        f, (z, y, x) = self.f, self.chunk.first
        start = [z, f.add(y, row), f.add(x, column)]
        whole = f.mul(f.div(count, TOGETHER), TOGETHER)
        for j, channel in enumerate(self.blocks):
            with f.when(self.within[j]):
                self.epilogue.prefetch(self.out, self.k.view.index(self.chunk.batch, channel, start))
                with f.loop(0, whole, TOGETHER) as at:
                    for t in range(TOGETHER):
                        self.vector(j, f.add(number, at, t), [*start[:2], f.add(start[2], at, t)])
                with f.loop(whole, count) as at:
                    self.vector(j, f.add(number, at), [*start[:2], f.add(start[2], at)])

    def vector(self, block: int, number: Index, pixel: Sequence[Index]) -> None:
        """A vector of outputs: the sums of pixel `number` of the group."""
        f, k, channel = self.f, self.k, self.blocks[block]
        place = self.sums(number, block)
        value = f.load(place, 0, k.sums, LANES)
        if self.again is not None:
            value = self.again.mended(value, self.chunk.batch, channel, pixel, place)
        if self.biases is not None:
            add = f.b.add if k.sums.kind == "i" else f.b.fadd
            value = add(value, self.biases[block])
        index = k.view.index(self.chunk.batch, channel, pixel)
        value = self.epilogue.apply(value, index, mask=self.masks[block])
        f.store(value, self.out, offset_of(f, k.out, index), k.out.dtype, LANES, self.masks[block])
