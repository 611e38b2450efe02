"""The products of a Winograd convolution whose weights stay as they are in memory, and are few: a box transforms those
of its channels once, in the worker's scratch, and then multiplies as if they had been stored so."""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.winograd.frame import WinogradFrame
from brickrt.ops.cpu.winograd.products import Products
from brickrt.ops.cpu.winograd.raw_products import transform


class WholeProducts(Products):
    """Emits weight transforms, before all tiles, and products of kernels without strides."""

    def __init__(self, frame: WinogradFrame) -> None:
        super().__init__(frame)
        self.weights = self.f.address(frame.v, frame.k.chunk_at, frame.dtype)
        self.transform()

    def transform(self) -> None:
        """Transforms the weights of the box's blocks of outputs, tile by tile."""
        f, k, frame = self.f, self.k, self.frame
        rest = k.out.channel_blocks % k.ob
        whole = k.out.channel_blocks - rest
        with f.loop(frame.first_block, f.minimum(frame.last_block, whole), k.ob) as block:
            self.tile(block, k.ob)
        if rest:
            with f.loop(f.maximum(frame.first_block, whole), frame.last_block, rest) as block:
                self.tile(block, rest)

    def tile(self, block: Index, count: int) -> None:
        """`count` blocks of outputs, for all swept taps and channels of the input."""
        f, k = self.f, self.k
        with f.loop(0, k.axes.swept.r) as tap, f.loop(0, k.ins[0].shape[1]) as channel:
            start = f.add(self.start(f.div(block, k.ob), tap), f.mul(channel, k.ob * k.lanes))
            made = f.address(self.weights, start, self.frame.dtype)
            transform(self.frame, (block, channel, tap), count, made, k.whole_plane)

    def start(self, tile: Index, tap: Index) -> Index:
        """Elements of a plane before the weights of a tile of blocks at a swept tap."""
        f, k = self.f, self.k
        return f.mul(f.add(f.mul(tile, k.axes.swept.r), tap), k.ins[0].shape[1] * k.ob * k.lanes)

    def panel(self, plane: Index, tile: Index, tap: Index, residue: Index) -> ir.Value:
        """See `Products`."""
        f, k = self.f, self.k
        return f.address(self.weights, f.add(f.mul(plane, k.whole_plane), self.start(tile, tap)), self.frame.dtype)
