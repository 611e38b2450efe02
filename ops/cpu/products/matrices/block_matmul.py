"""Products with constants of few bits.

They are dequantized in registers where a register tile has all rows, else a tile of columns at a time into the
workspace, where all rows read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from llvmlite import ir

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I32, Index, fill, vector
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.products.matrices.body import MatMulBody
from brickrt.ops.cpu.products.matrices.kernel import MatMulKernel
from brickrt.ops.cpu.products.register_tile import Accumulators, LoadWeight, PackedStream
from brickrt.ops.operators.block_matmul import F32, U8, BlockMatMul

Rows = Callable[[Index, list[ir.Value]], None]  # takes K and what the second factor has there, a vector for each block


@dataclass(frozen=True)
class BlockMatMulKernel(MatMulKernel):
    """A tile of columns is dequantized to the workspace where a box has more rows than a register tile."""

    op: BlockMatMul

    @cached_property
    def copies_weights(self) -> bool:
        """See `MatMulScheme`."""
        return bool(self.decided[2] if self.decided else self.shape_class[1] > self.tile[1])

    @cached_property
    def shares_chunks(self) -> bool:
        """See `MatMulScheme`: never."""
        return False

    def emit(self, f: FunctionEmitter) -> None:
        """See `BlockMatMulBody`."""
        BlockMatMulBody(self, f).emit()


class BlockMatMulBody(MatMulBody):
    """Emits the product; its loops over tiles are those of other products."""

    k: BlockMatMulKernel

    def __init__(self, kernel: BlockMatMulKernel, f: FunctionEmitter) -> None:
        super().__init__(kernel, f)
        self.scale, self.zero = f.pointer(3), f.pointer(4)
        self.place: tuple[Index, int] = (0, 0)  # the tile of columns that rows are multiplied with, and its blocks

    def rows(self, batch: list[Index], row: Index, runs: list, tile: Index, blocks: int, masked: bool) -> None:
        """Tells the tile to what dequantizes it."""
        self.place = tile, blocks
        super().rows(batch, row, runs, tile, blocks, masked)

    def copy_weights(self, batch: list[Index], tile: Index, blocks: int) -> None:
        """See `MatMulBody`."""
        self.each_depth(self.store)

    def store(self, c: Index, weights: list[ir.Value]) -> None:
        """Keeps what the second factor has at an element of K."""
        assert self.copied is not None
        f, lanes = self.f, self.k.lanes
        for j, weight in enumerate(weights):
            f.store(weight, self.copied, f.add(f.mul(c, self.width), j * lanes), F32, lanes)

    def weights(self, batch: list[Index], tile: Index, column: Index, masks: list[ir.Value | None]) -> LoadWeight:
        """Those of a tile that was copied."""
        k = self.k
        return PackedStream(self.f, self.b, k.tile[0], k.depth, F32, k.lanes)

    def multiply(self, acc: Accumulators, rows: ir.Value, offsets: list[int], weight: LoadWeight) -> None:
        """From the copied tile, or as it is dequantized."""
        if self.copied is not None:
            super().multiply(acc, rows, offsets, weight)
            return
        f, live = self.f, list(enumerate(offsets))

        def step(c: Index, weights: list[ir.Value]) -> None:
            acc.add_channel(f.address(rows, f.mul(c, self.k.a.strides[-1]), F32), live, weights)

        self.each_depth(step)

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return self.k.tile[0] * self.k.lanes

    def each_depth(self, take: Rows) -> None:
        """Gives `take` each element of K of the tile, in order."""
        f, block = self.f, self.k.op.block
        whole, rest = divmod(self.k.depth, block)
        with f.loop(0, whole) as g:
            self.block(g, block, take)
        if rest:
            self.block(whole, rest, take)

    def block(self, g: Index, count: int, take: Rows) -> None:
        """The `count` elements of K that share scales and zero points number `g`."""
        f, k, (tile, blocks) = self.f, self.k, self.place
        first = f.mul(f.add(f.mul(tile, k.ins[2].shape[0]), g), self.width)
        lanes = [f.add(first, j * k.lanes) for j in range(blocks)]
        scales = [f.load(self.scale, at, F32, k.lanes) for at in lanes]
        zeros = [self.words(self.zero, at) for at in lanes]
        start, each = f.mul(g, k.op.block), 8 // k.op.bits

        def floats(integers: Sequence[ir.Value]) -> list[ir.Value]:
            kind = vector(FLOAT, k.lanes)
            parts = zip(integers, zeros, scales, strict=True)
            return [f.b.fmul(f.b.sitofp(f.b.sub(q, zero), kind), scale) for q, zero, scale in parts]

        base = f.mul(f.add(f.mul(tile, k.ins[1].shape[0]), f.div(start, each)), self.width)
        with f.loop(0, count // each) as c:
            at = f.add(base, f.mul(c, self.width))
            words = [self.words(self.b, f.add(at, j * k.lanes)) for j in range(blocks)]
            if each == 1:
                take(f.add(start, c), floats(words))
                return
            low, four = fill(words[0].type, 15), fill(words[0].type, 4)
            take(f.add(start, f.mul(c, 2)), floats([f.b.and_(word, low) for word in words]))
            take(f.add(start, f.add(f.mul(c, 2), 1)), floats([f.b.lshr(word, four) for word in words]))

    def words(self, base: ir.Value, at: Index) -> ir.Value:
        """A vector of bytes, in 32 bits each."""
        return self.f.b.zext(self.f.load(base, at, U8, self.k.lanes), vector(I32, self.k.lanes))


@kernel_for(BlockMatMul)
def _choose(op: Op, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    return BlockMatMulKernel
