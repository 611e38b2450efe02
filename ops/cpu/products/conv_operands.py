"""Operands of a convolution inside its function: their addresses, and a tile's weights and bias."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import PTR, Index, register_type, vector, zeros
from brickrt.ops.cpu.products.conv_geometry import windows
from brickrt.ops.cpu.products.conv_scheme import ConvScheme
from brickrt.ops.cpu.products.register_tile import LoadWeight, PackedStream
from brickrt.ops.cpu.products.rows.pace import CHUNKS_AHEAD, Pace
from brickrt.ops.cpu.products.words.bfloat_dot import HALF_WORD, joined_words
from brickrt.ops.cpu.products.words.choose_dot import word_dot
from brickrt.ops.cpu.products.words.late_epilogue import LateEpilogue
from brickrt.ops.cpu.products.words.paired_bytes import PairedByteDot, PixelPairs
from brickrt.ops.operators.conv import ConvTranspose

BYTE = np.dtype(np.int8)


@dataclass(frozen=True)
class TilePosition:
    """Where the emitter is: image, group, chunk of input channels, first block of channels of the tile and how many,
    outer spatial indices; the tile's number among those that share weights."""

    n: Index
    group: Index
    chunk: Index
    block: Index
    count: int
    at: list[Index]
    number: Index = 0


class ConvOperands:
    """Loads addresses first. Weights are packed in streams, or copied to the workspace, or read where they lie."""

    def __init__(self, kernel: ConvScheme, f: FunctionEmitter) -> None:
        self.k, self.f = kernel, f
        self.out, self.x, self.w = (f.pointer(i) for i in range(3))
        self.bias = f.pointer(3) if kernel.op.bias else None
        self.prefetched = [f.pointer(1 + len(kernel.ins) + k) for k in range(len(kernel.prefetched))]
        self.factors = f.pointer(kernel.op.main) if kernel.op.channel_scaled else None
        asks = kernel.prefetch_bytes is not None
        self.later = f.local(PTR, f.pointer(len(kernel.ins) + kernel.extra_pointers)) if asks else None
        work = f.pointer(1 + len(kernel.ins) + kernel.extra_pointers) if kernel.workspace else None
        kept = f.address(work, kernel.kept_at, BYTE) if kernel.keeps_apart else None
        self.kept: ir.Value | None = kept  # sums of pixels between two sweeps
        self.copied_weights: ir.Value | None = work if kernel.copies_weights else None
        self.late: LateEpilogue | None = None
        self.known_members: list[list[Index]] | None = None  # of the blocks of a tile, where weights are no constants
        self.dot = word_dot(f, kernel.isa, kernel.integer, kernel.pairs_bytes) if kernel.in_words else None
        self.pairs = PixelPairs(f, self.dot, work) if isinstance(self.dot, PairedByteDot) else None
        self.epilogue = kernel.epilogue.bind(f)
        self.boxes = [f.box(d) for d in range(2, kernel.out.type.rank)]
        self.pace: Pace | None = None
        self.windows = windows(kernel.op, kernel.ins[0].shape[2:])[:-1]

    # ---- bias

    def padded_block(self, place: TilePosition) -> Index:
        """Index of the tile's first block where every group takes whole tiles (packed weights and bias)."""
        skipped = self.k.padded_blocks - self.k.group_blocks
        return self.f.add(place.block, self.f.mul(place.group, skipped))

    def initial(self, place: TilePosition) -> list[ir.Value]:
        """The bias of each block, or zero; less what the pairs of weights sum to, which lies behind all weights."""
        f, k = self.f, self.k
        starts = self.biases(place)
        if not k.pairs_bytes:
            return starts
        behind = f.address(self.w, k.padded_blocks * k.lanes * k.group_in * k.taps, k.weight_type)
        at = [f.mul(f.add(place.block, j), k.lanes) for j in range(place.count)]
        return [f.b.sub(start, f.load(behind, each, k.sums, k.lanes)) for start, each in zip(starts, at, strict=True)]

    def biases(self, place: TilePosition) -> list[ir.Value]:
        """The bias of each block, or zero."""
        f, k = self.f, self.k
        if self.bias is None:
            return [zeros(vector(register_type(k.sums), k.lanes))] * place.count
        dtype = k.ins[2].dtype
        if not k.packed[2]:
            base = f.address(self.bias, f.mul(place.group, k.group_out), dtype)
            return [f.collect(base, self.members(place, j), dtype, k.lanes) for j in range(place.count)]
        first = self.padded_block(place)
        return [f.load(self.bias, f.mul(f.add(first, j), k.lanes), dtype, k.lanes) for j in range(place.count)]

    def members(self, place: TilePosition, j: int) -> list[Index]:
        """Numbers in their group of the output channels of block `j` of a tile; lanes past the last one repeat it."""
        f, k = self.f, self.k
        part, j = divmod(j, place.count // k.op.gate_parts)
        first = f.mul(f.add(f.div(place.block, k.op.gate_parts), j), k.lanes)
        first = f.sub(first, f.mul(place.group, k.group_blocks * k.lanes))
        each = k.group_out // k.op.gate_parts
        return [f.add(f.minimum(f.add(first, lane), each - 1), part * each) for lane in range(k.lanes)]

    # ---- weights

    def beside(self, c: Index) -> None:
        """What is done in a step of a tile's sweep besides its products."""
        if self.later is not None:
            self.prefetch_later(c)
        if self.late is not None:
            self.late.one()

    def prefetch_later(self, c: Index) -> None:
        """Prefetches weights of a later kernel, while a tile sweeps channel `c` of a unit."""
        assert self.later is not None and self.k.prefetch_bytes is not None
        self.f.prefetch(self.f.get(self.later, PTR), self.f.mul(c, self.k.prefetch_bytes), BYTE, near=False)

    def weights(self, place: TilePosition, q: Index, channels: int, tap: Index) -> LoadWeight:
        """The function that loads the weights of one channel of unit `q` at a tap, for a block of the tile."""
        f, k = self.f, self.k
        copied = self.copied_weights
        if not k.packed[1] and copied is None:
            return self.loose_weights(place, q, tap)
        within = f.mul(f.add(f.mul(q, k.taps * k.unit), f.mul(tap, channels)), k.tile[0] * k.lanes)
        dtype = k.weight_type if copied is None else k.sums
        if copied is not None:
            within = f.sub(within, f.mul(self.steps_before(place), k.tile[0] * k.lanes))
        base = f.address(self.stream(place) if copied is None else copied, within, dtype)
        also = self.beside if self.later is not None or self.late is not None else None
        ask, follows = self.ask(place, q, channels, tap), copied is None
        return PackedStream(f, base, k.tile[0], k.group_in * k.taps, dtype, k.lanes, also, follows, ask)

    def ask(self, place: TilePosition, q: Index, channels: int, tap: Index) -> Callable[[Index, int], None] | None:
        """What asks for weights of later tiles while a tap of unit `q` is swept, where that has a pace."""
        f, k = self.f, self.k
        if self.pace is None:
            return None
        steps, first = k.chunk_units * k.unit * k.taps, self.steps_before(place)
        step = f.sub(f.add(f.mul(q, k.taps * k.unit), f.mul(tap, channels)), first)
        stream = f.address(self.stream(place), f.mul(first, self.pace.width), k.weight_type)
        return self.pace.asker(stream, k.weight_type, place.number, steps, step, CHUNKS_AHEAD)

    def stream(self, place: TilePosition) -> ir.Value:
        """Where the packed weights of a tile begin."""
        f, k = self.f, self.k
        return f.address(self.w, f.mul(self.padded_block(place), k.lanes * k.group_in * k.taps), k.weight_type)

    def copy_weights(self, place: TilePosition) -> None:
        """Writes the weights of a tile and a chunk to the workspace, packed, in the type of sums, times the factors of
        the input's channels where it has such."""
        f, k = self.f, self.k
        first = f.mul(place.chunk, k.chunk_units)
        whole, tail = k.whole_units, k.tail
        with f.loop(first, f.minimum(f.add(first, k.chunk_units), whole) if k.chunks > 1 else whole) as q:
            self.copy_unit(place, q, k.unit)
        if tail and k.chunks > 1:
            with f.when(f.b.icmp_signed("==", f.value(place.chunk), f.value(k.chunks - 1))):
                self.copy_unit(place, whole, tail)
        elif tail:
            self.copy_unit(place, whole, tail)

    def copy_unit(self, place: TilePosition, q: Index, channels: int) -> None:
        """Writes those of the `channels` channels of a unit."""
        f, k = self.f, self.k
        assert self.copied_weights is not None
        width = k.tile[0] * k.lanes
        to = f.address(self.copied_weights, f.mul(self.steps_before(place), -width), k.sums)
        with f.loop(0, k.taps) as tap, f.loop(0, channels) as c:
            first = f.mul(f.add(f.mul(q, k.taps * k.unit), f.mul(tap, channels), c), width)
            load = self.packed_weights(place, q, first) if k.packed[1] else self.loose_weights(place, q, tap)
            for j in range(place.count):
                f.store(load(c, j), to, f.add(first, j * k.lanes), k.sums, k.lanes)

    def packed_weights(self, place: TilePosition, q: Index, first: Index) -> LoadWeight:
        """Loads packed weights from element `first` of those of a tile on, times the factor of their channel."""
        f, k = self.f, self.k
        weights = self.stream(place)

        def load(c: Index, j: int) -> ir.Value:
            value = f.load(weights, f.add(first, j * k.lanes), k.weight_type, k.lanes)
            return value if self.factors is None else f.b.fmul(value, f.splat(self.factor(place, q, c), k.lanes))

        return load

    def steps_before(self, place: TilePosition) -> Index:
        """Multiplications of an output in the chunks before a place's."""
        k = self.k
        return self.f.mul(place.chunk, k.chunk_units * k.unit * k.taps) if k.chunks > 1 else 0

    def factor(self, place: TilePosition, q: Index, c: Index) -> ir.Value:
        """The factor of channel `c` of unit `q` of the input."""
        f, k = self.f, self.k
        operand = k.ins[k.op.main - 1]
        channel = f.add(f.mul(q, k.unit), c)
        block, lane = f.div(channel, operand.block), f.rem(channel, operand.block)
        at = f.add(f.mul(block, operand.strides[1]), lane)
        image = f.mul(place.n, operand.strides[0]) if operand.shape[0] > 1 else 0
        return f.load(self.factors, f.add(image, at), operand.dtype)

    def loose_weights(self, place: TilePosition, q: Index, tap: Index) -> LoadWeight:
        """Loads weights that are no constants from where they lie, one lane at a time."""
        f, k = self.f, self.k
        transposed, channels = isinstance(k.op, ConvTranspose), k.group_in * k.word
        per_out, per_in = (k.taps, k.group_out * k.taps) if transposed else (channels * k.taps, k.taps)
        group = f.mul(place.group, channels * k.group_out * k.taps)
        start = f.add(group, tap, f.mul(f.mul(q, k.unit * k.word), per_in))
        members = self.known_members or [self.members(place, j) for j in range(place.count)]
        lanes = [[f.add(start, f.mul(member, per_out)) for member in block] for block in members]

        def load(c: Index, j: int) -> ir.Value:
            within = f.mul(c, per_in * k.word)
            places = [f.add(lane, within) for lane in lanes[j]]
            if k.in_words:
                halves = [[f.add(at, half * per_in) for at in places] for half in range(k.word)]
                return joined_words(f, *(f.collect(self.w, half, HALF_WORD, k.lanes) for half in halves))
            value = f.collect(self.w, places, k.ins[1].dtype, k.lanes)
            return value if self.factors is None else f.b.fmul(value, f.splat(self.factor(place, q, c), k.lanes))

        return load
