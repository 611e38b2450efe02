"""The outputs of a group of tiles: sums from the workspace, epilogue, stores.

    steps over K       group 1 ├────────────┤        group 2 ├────────────┤
    outputs finished                             0 1 2 … of group 1  ┘          the last group's behind all others

Tile registers multiply beside what vector registers do, so a few outputs of a group are finished in each step of the
next one. Those of 0 steps are finished at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from brickrt.ops.cpu.amx.gather import Chunk
from brickrt.ops.cpu.amx.recompute_sums import Again, sums_at
from brickrt.ops.cpu.amx.scheme import OUTPUTS_AT_A_TIME, AmxScheme
from brickrt.ops.cpu.amx.sizes import LANES
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I64, Index
from brickrt.ops.cpu.operands.epilogue import offset_of


class Outputs:
    """Emits what follows the products. Sums lie in the workspace: [pixel][block][lanes]. Pixels of a plane come in
    order: `slot` is the next one, in `row` and `column` of the chunk, of those before `end`; the first whose sums are
    there is `base`."""

    def __init__(self, kernel: AmxScheme, f: FunctionEmitter, work: ir.Value) -> None:
        self.k, self.f, self.work = kernel, f, work
        self.out = f.pointer(0)
        self.epilogue = kernel.epilogue.bind(f)
        self.bounds = kernel.view.channels(f)
        self.slot, self.row, self.column, self.base, self.end = (f.local(I64) for _ in range(5))
        self.again = Again(kernel, f) if kernel.factors.parts > 1 else None

    def begin(self, chunk: Chunk, block: Index, blocks: int) -> None:
        """A new tile of output channels, from block `block` on."""
        f, k = self.f, self.k
        self.chunk, self.blocks = chunk, [f.mul(f.add(block, j), k.lanes) for j in range(blocks)]
        self.within = [k.view.within(f, at) for at in self.blocks]
        self.masks = [self.mask(at) if k.ragged else None for at in self.blocks]
        for place in (self.slot, self.row, self.column, self.base, self.end):
            f.set(place, f.value(0))

    def mask(self, channel: Index) -> ir.Value:
        """The lanes from `channel` on that belong to the box."""
        f, (lo, hi) = self.f, self.bounds
        before = f.tail_mask(f.sub(lo, channel), LANES)
        return f.b.and_(f.tail_mask(f.sub(hi, channel), LANES), f.b.not_(before))

    def sums(self, pixel: Index, block: int) -> ir.Value:
        """Where the sums of a pixel lie, counted from `base`."""
        return sums_at(self.k, self.f, self.work, pixel, block)

    def take(self, first: Index, count: Index) -> None:
        """The sums of pixels from `first` on are there."""
        self.f.set(self.base, self.f.value(first))
        self.f.set(self.end, self.f.value(self.f.add(first, count)))

    def left(self) -> ir.Value:
        """Whether outputs are left whose sums are there."""
        return self.f.b.icmp_signed("<", self.f.get(self.slot, I64), self.f.get(self.end, I64))

    def some(self) -> None:
        """Finishes the next outputs, if any are left."""
        with self.f.when(self.left()):
            self.piece()

    def rest(self) -> None:
        """Finishes all that are left."""
        f = self.f
        head, after = f.b.append_basic_block("rest"), f.b.append_basic_block("done")
        f.b.cbranch(self.left(), head, after)
        f.b.position_at_end(head)
        self.piece()
        f.b.cbranch(self.left(), head, after)
        f.b.position_at_end(after)

    def piece(self) -> None:
        """Outputs that lie side by side, up to a run; behind the last one of a row come pixels that are none."""
        f, chunk = self.f, self.chunk
        slot, row, column = (f.get(place, I64) for place in (self.slot, self.row, self.column))
        left = f.sub(f.get(self.end, I64), slot)
        count = f.minimum(f.minimum(left, f.sub(chunk.columns, column)), self.k.run)
        self.several(f.sub(slot, f.get(self.base, I64)), count, row, column)
        column = f.add(column, count)
        ends = f.b.icmp_signed("==", f.value(column), f.value(chunk.columns))
        halo = f.b.select(ends, f.value(f.sub(chunk.width, chunk.columns)), I64(0))
        f.set(self.slot, f.value(f.add(slot, count, halo)))
        f.set(self.column, f.b.select(ends, I64(0), f.value(column)))
        f.set(self.row, f.b.select(ends, f.b.add(row, I64(1)), row))

    def several(self, number: Index, count: Index, row: Index, column: Index) -> None:
        """`count` outputs from one on: OUTPUTS_AT_A_TIME, then single ones."""
        f, chunk = self.f, self.chunk
        (z, y, x) = chunk.first
        start = [z, f.add(y, row), f.add(x, column)]
        if self.again is not None:
            self.again.mend(self.sums(number, 0), count, self.within, chunk.batch, self.blocks[0], start)
        self.epilogue.locate(self.k.view.index(f, chunk.batch, channel, start) for channel in self.blocks)
        whole = f.mul(f.div(count, OUTPUTS_AT_A_TIME), OUTPUTS_AT_A_TIME)
        with f.loop(0, whole, OUTPUTS_AT_A_TIME) as at:
            pixels = [[*start[:2], f.add(start[2], at, t)] for t in range(OUTPUTS_AT_A_TIME)]
            for j, within in enumerate(self.within):
                with f.when(within):
                    self.together(j, f.add(number, at), pixels)
        with f.loop(whole, count) as at:
            for j, within in enumerate(self.within):
                with f.when(within):
                    self.vector(j, f.add(number, at), [*start[:2], f.add(start[2], at)])

    def together(self, block: int, number: Index, pixels: Sequence[Sequence[Index]]) -> None:
        """OUTPUTS_AT_A_TIME vectors of outputs from `number` on. Bytes of images lie one behind the other."""
        f, k, channel = self.f, self.k, self.blocks[block]
        if k.cut or not (k.view.adjacent and k.epilogue.packs and k.out.strides[-1] == k.out.block == LANES):
            for t, pixel in enumerate(pixels):
                self.vector(block, f.add(number, t), pixel)
            return
        places = [self.sums(f.add(number, t), block) for t in range(OUTPUTS_AT_A_TIME)]
        values = [f.load(place, 0, k.sums, LANES) for place in places]
        indices = [k.view.index(f, self.chunk.batch, channel, pixel) for pixel in pixels]
        to = f.address(self.out, offset_of(f, k.out, indices[0]), k.out.dtype)
        f.b.store(self.epilogue.four(values, indices), to, align=1)

    def vector(self, block: int, number: Index, pixel: Sequence[Index]) -> None:
        """A vector of outputs."""
        f, k, channel = self.f, self.k, self.blocks[block]
        value = f.load(self.sums(number, block), 0, k.sums, LANES)
        index = k.view.index(f, self.chunk.batch, channel, pixel)
        if not k.cut:
            self.put(value, index, self.masks[block])
            return
        with f.when(k.view.reached(f, index)):
            self.put(value, index, self.masks[block])

    def put(self, value: ir.Value, index: list[Index], mask: ir.Value | None) -> None:
        """Applies the epilogue to a vector of sums and stores it."""
        f, k = self.f, self.k
        value = self.epilogue.apply(value, index, mask=mask)
        f.store(value, self.out, offset_of(f, k.out, index), k.out.dtype, LANES, mask)
