"""Convolutions whose groups share a vector of channels: depthwise ones, and groups that are no multiple of the lanes.

A lane is an output channel, and reads input channels of its own group: for member j of the group, lane l reads channel
group(l)*C/g + j; `groups/lane_groups.py` tells how. A vector of such inputs serves all pixels of a register tile and
all taps along the row that read it. Weights are packed [block][taps][member][lanes], blocks part after part of the
product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from llvmlite import ir

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index, register_type, vector, zeros
from brickrt.ops.cpu.emit.variables import Variable
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.operands.epilogue import offset_of
from brickrt.ops.cpu.products.conv import ConvKernel
from brickrt.ops.cpu.products.conv_geometry import windows
from brickrt.ops.cpu.products.conv_scheme import ANY_ROW, ConvScheme
from brickrt.ops.cpu.products.groups.lane_groups import LaneGroups
from brickrt.ops.cpu.products.groups.lane_inputs import LaneInputs, lane_inputs
from brickrt.ops.cpu.products.live_taps import first_input, live_taps, tile_place, walked_taps, walked_tiles
from brickrt.ops.cpu.products.row_tiles import FEW_SUMS, PixelTile
from brickrt.ops.cpu.products.rows.short_rows import RowTiles
from brickrt.ops.cpu.products.words.byte_dot import ByteDot
from brickrt.ops.cpu.products.words.words import multiplies_integers
from brickrt.ops.operators.conv import Conv, ConvTranspose

PIXELS = 8  # accumulators of a tile: enough to hide the latency of the additions
GROUP_PIXELS = 16  # the same of groups of several channels: inputs that taps share are fewer in long tiles
FEW_GROUP_PIXELS = 10  # the same where there are 16 registers
MOST_SHARING = 4  # taps along the row that share the lanes' inputs
MOST_WEIGHTS = 12  # weights that are kept in registers meanwhile

TapReads = tuple[int, tuple[int | None, ...]]
"""The number of a tap, and what each pixel of a tile reads by it, None where that is nothing."""


@dataclass(frozen=True)
class DepthwiseKernel(ConvScheme):
    """`shape_class` as ConvKernel's; the tile is one block of channels by PIXELS pixels."""

    prefetches: ClassVar[bool] = False

    @property
    def in_words(self) -> bool:
        """A lane reads channels, not words."""
        return False

    @cached_property
    def knows_channels(self) -> bool:
        """See `Kernel`: where each is a group of its own, in blocks, channels are sizes."""
        single = self.group_in == self.group_out == self.op.gate_parts == 1
        blocked = self.ins[0].block > 1 and self.out.block > 1
        return not (single and blocked and all(self.packed[1 : self.op.main]))

    def opened_op(self, take: Callable[[int], Any]) -> tuple[Op, tuple[Any, ...]]:
        """See `Kernel`: there are as many groups as channels."""
        op = self.op if self.knows_channels else replace(self.op, groups=take(self.op.groups))
        return op, self.decisions()

    @property
    def group_in(self) -> int:
        """See `ConvScheme`: the code knows it."""
        return int(super().group_in)

    @property
    def group_out(self) -> int:
        """See `ConvScheme`: the code knows it."""
        return int(super().group_out)

    @property
    def packs_weights(self) -> bool:
        """Weights that are no constants are gathered by each tile."""
        return False

    @cached_property
    def lane_groups(self) -> LaneGroups:
        """Which groups the lanes belong to."""
        return LaneGroups(self.lanes, self.group_in, self.group_out, self.op.gate_parts, self.out.shape[1])

    @property
    def shuffles(self) -> bool:
        """Whether the lanes' inputs are shuffled from whole vectors."""
        return self.lane_groups.shuffles and self.ins[0].block == self.lanes

    @property
    def shares_taps(self) -> int:
        """Taps along the row at a time that share the lanes' inputs: their weights stay in registers."""
        if self.group_in == self.group_out == 1:
            return 1
        return max(1, MOST_WEIGHTS // self.group_in) if self.shuffles else MOST_SHARING

    @cached_property
    def tile(self) -> tuple[int, int]:
        """One block of channels by as many pixels as hide the latency of a multiply-add."""
        many = self.isa.registers >= 32
        if self.group_in == 1:
            return 1, PIXELS if many else PIXELS // 2
        pixels = GROUP_PIXELS if many else PIXELS if self.shuffles else FEW_GROUP_PIXELS
        pixels = min(pixels, FEW_SUMS) if self.isa.double_pumped else pixels
        return 1, max(1, pixels * 4 // (self.op.gate_parts * self.sums.itemsize))

    @property
    def tap_code(self) -> int:
        """Members that are written out, for every kind of blocks."""
        groups = self.lane_groups
        return groups.period[0] * groups.group_in if self.shuffles else len(groups.held)

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        """Weights as [block][taps][member][lanes], the bias up to whole blocks."""
        parts, each, blocks = self.op.gate_parts, self.out.shape[1], self.op.gate_parts * self.out.channel_blocks
        padding = self.out.channel_blocks * self.lanes - each
        if i == 1:
            w = array
            if isinstance(self.op, ConvTranspose):
                w = np.moveaxis(w.reshape(self.op.groups, self.group_in, self.group_out, self.taps), 2, 1)
            rows = w.reshape(parts, each, self.group_in, self.taps)
            whole = np.pad(rows, [(0, 0), (0, padding), (0, 0), (0, 0)])
            whole = whole.reshape(blocks, self.lanes, self.group_in, self.taps)
            return np.ascontiguousarray(whole.transpose(0, 3, 2, 1))
        if i == 2 and self.op.bias:
            return np.pad(array.reshape(parts, each), [(0, 0), (0, padding)])
        return Kernel.pack(self, i, array)

    def packed_elements(self, i: int) -> int:
        """See `Kernel`."""
        padded = self.op.gate_parts * self.out.channel_blocks * self.lanes
        if i == 1:
            return padded * self.taps * self.group_in
        return padded if i == 2 and self.op.bias else super().packed_elements(i)

    def emit(self, f: FunctionEmitter) -> None:
        """See `DepthwiseBody`."""
        DepthwiseBody(self, f).emit()


class DepthwiseBody:
    """Emits a depthwise convolution."""

    def __init__(self, kernel: DepthwiseKernel, f: FunctionEmitter) -> None:
        self.k, self.f = kernel, f
        self.out, self.x, self.w = (f.pointer(i) for i in range(3))
        self.bias = f.pointer(3) if kernel.op.bias else None
        self.dot = ByteDot.of(f, kernel.isa) if kernel.integer else None
        self.kind = vector(register_type(kernel.sums), kernel.lanes)
        self.epilogue = kernel.epilogue.bind(f)
        self.windows = windows(kernel.op, kernel.ins[0].shape[2:])[:-1]
        self.inputs: list[LaneInputs] = []  # of the block of each part where the emitter is

    def emit(self) -> None:
        """Images, blocks of channels, rows."""
        f, k = self.f, self.k
        lo, hi = f.box(1)
        blocks = f.div(lo, k.lanes), f.div(f.add(hi, k.lanes - 1), k.lanes)
        spatial = [f.box(d) for d in range(2, k.out.type.rank)]
        outer = [(lo, f.add(lo, 1)) for lo, _ in spatial[:-1]] if k.flat else spatial[:-1]
        with f.loop(*f.box(0)) as n, f.loop(*blocks) as block:
            for inputs in lane_inputs(f, self.x, k.ins[0], k.lane_groups, block):
                self.inputs = inputs
                with f.loops(outer) as at:
                    self.row([n, block, *at], spatial[-1][0])

    def row(self, at: list[Index], x: Index) -> None:
        """One row of output pixels, from `x` on: runs of tiles."""
        f, k = self.f, self.k
        if k.walks_taps:
            end = f.box(k.out.type.rank - 1)[1]
            for pixel, count in walked_tiles(f, k.row_window, x, end, k.tile[1]):
                self.tile(at, pixel, pixel, PixelTile(1, count, ()))
            return
        first = first_input(f, k.row_window, x)
        for run in RowTiles(k.tile[1], 1, k.isa).runs(k.row_window, k.row_class):
            with f.loop(0, run.repeat) as r:
                self.tile(at, *tile_place(f, run, x, first, r), run.tile)

    def tile(self, at: list[Index], out_x: Index, in_x: Index, tile: PixelTile) -> None:
        """One register tile per part, from bias to store."""
        f, k = self.f, self.k
        n, block, *rows = at
        parts = [f.add(block, part * k.out.channel_blocks) for part in range(k.op.gate_parts)]
        sums = []
        for start in [self.initial(part) for part in parts]:
            sums.append([f.variable(start) for _ in range(tile.count)])
        with ExitStack() as loops:
            base: Index = f.mul(n, k.ins[0].strides[0])
            tap: Index = 0
            for axis, (window, y) in enumerate(zip(self.windows, rows, strict=True)):
                key, index = loops.enter_context(live_taps(f, window, k.out.shape[2 + axis], y))
                base = f.add(base, f.mul(index, k.ins[0].strides[2 + axis]))
                tap = f.add(f.mul(tap, window.kernel), key)
            for acc, part, inputs in zip(sums, parts, self.inputs, strict=True):
                for origin, key, taps in self.taps(in_x, tile):
                    start = f.add(base, f.mul(origin, k.ins[0].strides[-1]))
                    self.row_taps(acc, part, inputs, start, f.add(f.mul(tap, k.row_window.kernel), key), taps)

        def store(t: Index, values: Sequence[ir.Value]) -> None:
            index = [n, f.mul(block, k.lanes), *rows, f.add(out_x, f.mul(t, tile.step))]
            value = self.epilogue.apply(values[0], index, others=values[1:])
            f.store(value, self.out, offset_of(f, k.out, index), k.out.dtype, k.lanes)

        self.epilogue.each([[f.read(acc[t]) for acc in sums] for t in range(tile.count)], store)

    def taps(self, in_x: Index, tile: PixelTile) -> Iterator[tuple[Index, Index, list[TapReads]]]:
        """Some taps along the row at a time: the input from which on they read, the number of the first, and from there
        on the number of each and what each pixel reads by it."""
        f, k = self.f, self.k
        if k.walks_taps:
            for tap, index, reads in walked_taps(f, k.row_window, k.out.shape[-1], in_x, tile.count):
                yield index, tap, [(0, reads)]
            return
        taps = list(enumerate(tile.taps))
        for first in range(0, len(taps), k.shares_taps):
            yield in_x, 0, taps[first : first + k.shares_taps]

    def initial(self, block: Index) -> ir.Value:
        """The bias of a block, or zero."""
        f, k = self.f, self.k
        if self.bias is None:
            return zeros(self.kind)
        if not k.packed[2]:
            return f.collect(self.bias, self.channels(block), k.ins[2].dtype, k.lanes)
        return f.load(self.bias, f.mul(block, k.lanes), k.ins[2].dtype, k.lanes)

    def channels(self, block: Index) -> list[Index]:
        """The channels of a block of the product; lanes past the last one of a part repeat it."""
        f, k = self.f, self.k
        part = f.div(block, k.out.channel_blocks) if k.op.gate_parts > 1 else 0
        first = f.mul(f.sub(block, f.mul(part, k.out.channel_blocks)), k.lanes)
        inner = [f.minimum(f.add(first, lane), k.out.shape[1] - 1) for lane in range(k.lanes)]
        return [f.add(f.mul(part, k.out.shape[1]), channel) for channel in inner]

    def row_taps(
        self,
        acc: list[Variable],
        block: Index,
        inputs: LaneInputs,
        base: Index,
        first_tap: Index,
        taps: Sequence[TapReads],
    ) -> None:
        """Some taps along the row, for all members of the groups: each of their pixels is read once."""
        f, k = self.f, self.k
        rels = sorted({rel for _, row in taps for rel in row if rel is not None})
        for members in inputs.members(base) if rels else ():
            weights = [[self.weight(block, f.add(first_tap, kx), member) for kx, _ in taps] for member, _ in members]
            for rel in rels:
                for (_, reader), row in zip(members, weights, strict=True):
                    pixel = self.widened(reader(rel * k.ins[0].strides[-1]))
                    for (_, reads), weight in zip(taps, row, strict=True):
                        for total in (total for total, at in zip(acc, reads, strict=True) if at == rel):
                            f.change(total, self.product(f.read(total), pixel, weight))

    def widened(self, value: ir.Value) -> ir.Value:
        """Unsigned bytes of a lane each in 32 bits; floats as they are."""
        return self.f.b.zext(value, self.kind) if self.dot else value

    def product(self, total: ir.Value, pixel: ir.Value, weight: ir.Value) -> ir.Value:
        """The sums with a product added."""
        return self.dot.add_lanes(total, pixel, weight) if self.dot else self.f.fma(pixel, weight, total)

    def weight(self, block: Index, tap: Index, member: Index) -> ir.Value:
        """A vector of weights: of each lane's channel, at a tap, for a member of its group."""
        f, k, dtype = self.f, self.k, self.k.ins[1].dtype
        if k.packed[1]:
            at = f.add(f.mul(f.add(f.mul(block, k.taps), tap), k.group_in), member)
            value = f.load(self.w, f.mul(at, k.lanes), dtype, k.lanes)
            return f.b.sext(value, self.kind) if self.dot else value
        return f.collect(self.w, [self.weight_at(c, tap, member) for c in self.channels(block)], dtype, k.lanes)

    def weight_at(self, channel: Index, tap: Index, member: Index) -> Index:
        """Offset of a weight that lies as the operator has it."""
        f, k = self.f, self.k
        if isinstance(k.op, Conv):
            return f.add(f.mul(channel, k.group_in * k.taps), f.mul(member, k.taps), tap)
        group, inner = f.div(channel, k.group_out), f.rem(channel, k.group_out)
        row = f.add(f.mul(group, k.group_in), member)
        return f.add(f.mul(f.add(f.mul(row, k.group_out), inner), k.taps), tap)


@kernel_for(Conv, ConvTranspose)
def _choose(op: Conv | ConvTranspose, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    if op.groups == 1 or (multiplies_integers(ins) and op.groups < out.shape[1]):
        return ConvKernel
    blocks, rest = divmod(out.shape[1] // op.groups, isa.lanes)
    whole = op.gate_parts == 1 and rest == 0
    shares = isinstance(op, Conv) and (blocks == 1 or (isa.registers < 32 and op.kernel[-1] > 1))
    if whole and shares:  # taps that are walked share no inputs
        shares = not DepthwiseKernel(op, tuple(ins), out, isa, (False,) * len(ins), (0, 0, *ANY_ROW)).walks_taps
    return ConvKernel if whole and not shares else DepthwiseKernel
