"""The output transform of integers, which takes off what transformed weights were multiplied with."""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.winograd.integers.transforms import back, output_rows
from brickrt.ops.cpu.winograd.output_transform import OutputTransform


class IntegerOutput(OutputTransform):
    """Emits the output transform."""

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
