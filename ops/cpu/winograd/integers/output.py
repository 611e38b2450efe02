"""The output transform of integers, which takes off what transformed weights were multiplied with."""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.arithmetic.quantize import PACKS
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.products.words.packed_pixels import PackedPixels
from brickrt.ops.cpu.winograd.integers.frame import IntegerFrame
from brickrt.ops.cpu.winograd.integers.transforms import back, output_rows
from brickrt.ops.cpu.winograd.output_transform import OutputTransform


class IntegerOutput(OutputTransform):
    """Emits the output transform."""

    frame: IntegerFrame

    def __init__(self, frame: IntegerFrame) -> None:
        super().__init__(frame)
        self.pixels = PackedPixels(frame.f, self.epilogue, frame.out, frame.k.out)

    def transformed(self, start: ir.Value, channel: Index) -> list[list[ir.Value]]:
        """The tile's outputs, with bias."""
        f, k, frame = self.f, self.k, self.frame
        _, down, across = k.axes
        planes = [f.load(start, p * k.plane_out, frame.dtype, k.lanes) for p in range(k.axes.planes)]
        columns = [output_rows(f, planes[c :: across.n], down) for c in range(across.n)]
        rows = [output_rows(f, [column[r] for column in columns], across) for r in range(down.m)]
        bias = None if frame.bias is None else f.load(frame.bias, channel, frame.dtype, k.lanes)
        return [[self.output(value, (y, x), bias) for x, value in enumerate(row)] for y, row in enumerate(rows)]

    def output(self, value: ir.Value, place: tuple[int, int], bias: ir.Value | None) -> ir.Value:
        """One of them."""
        value = back(self.f, value, place, self.k.axes[1:])
        return value if bias is None else self.f.b.add(value, bias)

    def store_whole(self, rows: list[list[ir.Value]], indices: list[list[list[Index]]]) -> None:
        """See `OutputTransform`: pixels of a row that lie side by side are packed together."""
        if not self.packs:
            super().store_whole(rows, indices)
            return
        for values, places in zip(rows, indices, strict=True):
            self.pixels.group(values, places)

    @property
    def packs(self) -> bool:
        """Whether they are bytes that do."""
        k, across = self.k, self.k.axes.across
        adjacent = k.out.strides[-1] == k.out.block == k.lanes and across.dilation == 1
        return adjacent and k.lanes in PACKS and k.epilogue.packs
