"""The code that brings each lane of a block of output channels the input of its own group (`lane_groups.py`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I64, Index
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.products.groups.lane_groups import LaneGroups

PixelReader = Callable[[int], ir.Value]  # elements from a first pixel → the lanes' inputs at a member


@dataclass(frozen=True)
class LaneInputs(ABC):
    """The inputs of one block of output channels; `x` is the address of the tensor `operand`."""

    f: FunctionEmitter
    x: ir.Value
    operand: Operand
    groups: LaneGroups

    @abstractmethod
    def members(self, base: Index) -> Iterator[list[tuple[Index, PixelReader]]]:
        """The members of a group, each with the code that reads it: those at a time, in a loop, that share a pixel.
        `base` is the offset of channel 0 of the first pixel."""

    def offset(self, channel: Index) -> Index:
        """Offset of a channel of the input."""
        f, x = self.f, self.operand
        return f.add(f.mul(f.div(channel, x.block), x.strides[1]), f.rem(channel, x.block))


@dataclass(frozen=True)
class BlockSpan:
    """The first channel of a block of the product, and the groups of its first and its last."""

    first: Index
    group: Index
    last: Index

    @staticmethod
    def of(f: FunctionEmitter, groups: LaneGroups, block: Index) -> BlockSpan:
        """The span of block `block`."""
        part = f.div(block, groups.blocks) if groups.parts > 1 else 0
        first = f.add(f.mul(block, groups.lanes), f.mul(part, groups.each - groups.blocks * groups.lanes))
        end = f.minimum(f.add(first, groups.lanes), f.mul(f.add(part, 1), groups.each))
        return BlockSpan(first, f.div(first, groups.group_out), f.div(f.sub(end, 1), groups.group_out))


@dataclass(frozen=True)
class BroadcastInputs(LaneInputs):
    """A member of each of the block's groups in all lanes, of which masks choose.

    `firsts` are the groups' first input channels, `masks` tell of each group but the first from which lane on it reads.
    """

    firsts: tuple[Index, ...]
    masks: tuple[ir.Value, ...]

    @staticmethod
    def of_block(
        f: FunctionEmitter, x: ir.Value, operand: Operand, groups: LaneGroups, span: BlockSpan, held: int
    ) -> BroadcastInputs:
        """Those of a block that holds at most `held` groups."""
        firsts, masks = [f.mul(span.group, groups.group_in)], []
        steps = ir.Constant(ir.VectorType(I64, groups.lanes), list(range(groups.lanes)))
        for k in range(1, held):
            at = f.add(span.group, k)
            firsts.append(f.mul(f.minimum(at, span.last), groups.group_in))
            lane = k * groups.group_out if groups.aligned else f.sub(f.mul(at, groups.group_out), span.first)
            masks.append(f.b.icmp_signed(">=", steps, f.splat(f.value(lane), groups.lanes)))
        return BroadcastInputs(f, x, operand, groups, tuple(firsts), tuple(masks))

    def members(self, base: Index) -> Iterator[list[tuple[Index, PixelReader]]]:
        """One at a time."""
        with self.f.loop(0, self.groups.group_in) as member:
            yield [(member, self.reader(base, member))]

    def reader(self, base: Index, member: Index) -> PixelReader:
        """The code that reads one member of each group."""
        f, dtype, lanes = self.f, self.operand.dtype, self.groups.lanes
        within = self.operand.block % self.groups.group_in == 0
        channels = (
            f.add(self.offset(first), f.mul(member, 1 if self.operand.block > 1 else self.operand.strides[1]))
            if within or self.operand.block == 1
            else self.offset(f.add(first, member))
            for first in self.firsts
        )
        rows = [f.address(self.x, f.add(base, channel), dtype) for channel in channels]

        def read(offset: int) -> ir.Value:
            value, *others = (f.splat(f.load(row, offset, dtype), lanes) for row in rows)
            for mask, other in zip(self.masks, others, strict=True):
                value = f.b.select(mask, other, value)
            return value

        return read


@dataclass(frozen=True)
class ShuffledInputs(LaneInputs):
    """Lanes of one or two vectors; `block` is one of blocks of number `phase` in their period."""

    block: Index
    phase: int

    def members(self, base: Index) -> Iterator[list[tuple[Index, PixelReader]]]:
        """All at once."""
        f, groups, x = self.f, self.groups, self.operand
        outputs, inputs = groups.period
        picks = [groups.sources(self.phase, member) for member in range(groups.group_in)]
        low, high = (edge // groups.lanes for edge in (min(p[0] for p in picks), max(p[-1] for p in picks)))
        start = f.mul(f.div(self.block, outputs), inputs)
        blocks = [f.minimum(f.add(start, k), x.channel_blocks - 1) if k else start for k in range(low, high + 1)]
        rows = [f.address(self.x, f.add(base, f.mul(block, x.strides[1])), x.dtype) for block in blocks]
        vectors: dict[tuple[int, int], ir.Value] = {}

        def vector(k: int, offset: int) -> ir.Value:
            if (k, offset) not in vectors:
                vectors[k, offset] = f.load(rows[k], offset, x.dtype, groups.lanes)
            return vectors[k, offset]

        def reader(picked: np.ndarray) -> PixelReader:
            first, last = (int(picked[k]) // groups.lanes for k in (0, -1))
            lanes = (picked - first * groups.lanes).tolist()
            return lambda offset: f.shuffle(vector(first - low, offset), vector(last - low, offset), lanes)

        yield [(member, reader(picked)) for member, picked in enumerate(picks)]


def lane_inputs(
    f: FunctionEmitter, x: ir.Value, operand: Operand, groups: LaneGroups, block: Index
) -> Iterator[list[LaneInputs]]:
    """The inputs of block `block` of each part, once for each kind of blocks that has code of its own: what is emitted
    in the meantime runs for blocks of that kind."""
    blocks = [f.add(block, part * groups.blocks) for part in range(groups.parts)]
    if groups.shuffles and operand.block == groups.lanes:
        outputs, _ = groups.period
        for phase in _cases(f, f.rem(block, outputs), outputs):
            yield [ShuffledInputs(f, x, operand, groups, at, phase) for at in blocks]
        return
    spans = [BlockSpan.of(f, groups, at) for at in blocks]
    alone = groups.parts == 1 and groups.held[0] == 1
    counts = [1, groups.held[-1]] if alone and len(groups.held) > 1 else groups.held[-1:]
    for case in _cases(f, f.minimum(f.sub(spans[0].last, spans[0].group), 1), len(counts)):
        yield [BroadcastInputs.of_block(f, x, operand, groups, span, counts[case]) for span in spans]


def _cases(f: FunctionEmitter, number: Index, count: int) -> Iterator[int]:
    """As `FunctionEmitter.cases`; one case costs nothing."""
    return iter(range(1)) if count == 1 else f.cases(number, count)
