"""The outputs of a group of tiles: sums from the workspace, bias, epilogue, stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from brickrt.ops.cpu.amx.again import Again
from brickrt.ops.cpu.amx.factors import LANES
from brickrt.ops.cpu.amx.gather import BYTE, Chunk
from brickrt.ops.cpu.amx.scheme import BLOCKS, AmxScheme
from brickrt.ops.cpu.amx.tile_registers import ROW_BYTES
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I64, Index
from brickrt.ops.cpu.operands.epilogue import offset_of


@dataclass(frozen=True)
class SlotRange:
    """Some pixels of a plane one behind the other; those beyond the columns of a chunk are no outputs."""

    first: Index
    count: Index


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
        """Where the sums of a pixel lie; a tile's are one behind the other."""
        f = self.f
        tile, row = f.div(pixel, LANES), f.rem(pixel, LANES)
        place = f.add(f.mul(f.add(f.mul(tile, BLOCKS), block), LANES), row)
        return f.address(self.work, f.mul(place, ROW_BYTES), BYTE)

    def finish(self, slots: SlotRange) -> None:
        """The outputs of some pixels."""
        f, chunk = self.f, self.chunk
        with f.loop(0, slots.count) as number:
            row, column = f.get(self.row, I64), f.get(self.column, I64)
            with f.when(f.b.icmp_signed("<", column, f.value(chunk.columns))):
                z, y, x = chunk.first
                self.pixel(number, [z, f.add(y, row), f.add(x, column)])
            ends = f.b.icmp_signed("==", f.b.add(column, I64(1)), f.value(chunk.width))
            f.set(self.column, f.b.select(ends, I64(0), f.b.add(column, I64(1))))
            f.set(self.row, f.b.select(ends, f.b.add(row, I64(1)), row))

    def pixel(self, number: Index, pixel: Sequence[Index]) -> None:
        """The channels of one pixel that belong to the box."""
        f, k = self.f, self.k
        for j, channel in enumerate(self.blocks):
            with f.when(self.within[j]):
                value = f.load(self.sums(number, j), 0, k.sums, LANES)
                if self.again is not None:
                    value = self.again.mended(value, self.chunk.batch, channel, pixel, self.sums(number, j))
                if self.biases is not None:
                    add = f.b.add if k.sums.kind == "i" else f.b.fadd
                    value = add(value, self.biases[j])
                index = k.view.index(self.chunk.batch, channel, pixel)
                value = self.epilogue.apply(value, index, mask=self.masks[j])
                f.store(value, self.out, offset_of(f, k.out, index), k.out.dtype, LANES, self.masks[j])
