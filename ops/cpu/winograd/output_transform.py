"""The output transform of a Winograd convolution: Aᵀ M A, bias and epilogue, and what of a tile lies in the box."""

from __future__ import annotations

from itertools import chain

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.operands.epilogue import offset_of
from brickrt.ops.cpu.winograd.frame import TileGroup, WinogradFrame, WinogradTile
from brickrt.ops.cpu.winograd.transforms import output_rows


class OutputTransform:
    """Emits the output transform."""

    def __init__(self, frame: WinogradFrame) -> None:
        self.frame, self.k, self.f = frame, frame.k, frame.f
        self.epilogue = frame.k.epilogue.bind(frame.f)

    def emit(self, group: TileGroup) -> None:
        """All tiles, planes and blocks of channels of a group."""
        f, k, frame = self.f, self.k, self.frame
        with frame.tiles(group) as tile, f.loop(group.lo, group.hi) as z, f.loop(0, frame.own) as b:
            row = f.add(f.mul(f.sub(z, group.lo), group.blocks), tile.block)
            at = f.add(f.mul(f.add(f.mul(row, frame.own), b), k.t * k.lanes), f.mul(tile.place, k.lanes))
            channel = f.mul(f.add(frame.first_block, b), k.lanes)
            self.prefetch(tile, z, channel)
            self.store(self.transformed(f.address(frame.m, at, frame.dtype), channel), tile, z, channel)

    def prefetch(self, tile: WinogradTile, z: Index, channel: Index) -> None:
        """Asks for the lines that the next tile's outputs are written to."""
        f, k, frame = self.f, self.k, self.frame
        _, down, across = k.axes
        first = offset_of(f, k.out, frame.index(tile.n, channel, (z, *tile.corner)))
        _, *steps = frame.strides(k.out.strides)
        rows = (f.add(first, i * down.dilation * steps[0], across.after(1) * steps[1]) for i in range(down.m))
        for row in [f.address(frame.out, row, k.out.dtype) for row in rows]:
            for j in range(across.m):
                f.prefetch(row, j * across.dilation * steps[1], k.out.dtype, write=True)

    def transformed(self, start: ir.Value, channel: Index) -> list[list[ir.Value]]:
        """The tile's outputs, with bias."""
        f, k, frame = self.f, self.k, self.frame
        _, down, across = k.axes
        planes = [f.load(start, p * k.plane_out, frame.dtype, k.lanes) for p in range(k.axes.planes)]
        columns = [output_rows(f, planes[c :: across.n], down) for c in range(across.n)]
        bias = None if frame.bias is None else f.load(frame.bias, channel, frame.dtype, k.lanes)
        rows = [output_rows(f, [column[r] for column in columns], across) for r in range(down.m)]
        return rows if bias is None else [[f.b.fadd(value, bias) for value in row] for row in rows]

    def store(self, rows: list[list[ir.Value]], tile: WinogradTile, z: Index, channel: Index) -> None:
        """All outputs where they belong to the tile and the box, else those that do."""
        f, (y_end, x_end) = self.f, map(self.f.value, tile.ends)
        ys, xs = (
            [f.add(at, i * span.axis.dilation) for i in range(span.axis.m)]
            for at, span in zip(tile.corner, self.frame.plane, strict=True)
        )
        pixels = [(value, y, x) for row, y in zip(rows, ys, strict=True) for value, x in zip(row, xs, strict=True)]

        def belongs(y: Index, x: Index) -> ir.Value:
            return f.b.and_(f.b.icmp_signed("<", f.value(y), y_end), f.b.icmp_signed("<", f.value(x), x_end))

        with f.b.if_else(belongs(ys[-1], xs[-1])) as (whole, partial):
            with whole:
                self.store_whole(rows, [[self.frame.index(tile.n, channel, (z, y, x)) for x in xs] for y in ys])
            with partial:
                for value, y, x in pixels:
                    with f.when(belongs(y, x)):
                        self.store_pixel(value, self.frame.index(tile.n, channel, (z, y, x)))

    def store_whole(self, rows: list[list[ir.Value]], indices: list[list[list[Index]]]) -> None:
        """All outputs of a tile, by their indices."""
        for value, index in zip(chain(*rows), chain(*indices), strict=True):
            self.store_pixel(value, index)

    def store_pixel(self, value: ir.Value, index: list[Index]) -> None:
        """Epilogue and store of a vector."""
        f, frame = self.f, self.frame
        value = self.epilogue.apply(value, index)
        f.store(value, frame.out, offset_of(f, self.k.out, index), self.k.out.dtype, self.k.lanes)

    def finish(self, value: ir.Value, index: list[Index]) -> None:
        """Bias, epilogue and store of a vector."""
        frame = self.frame
        if frame.bias is not None:
            value = self.f.b.fadd(value, self.f.load(frame.bias, index[1], frame.dtype, self.k.lanes))
        self.store_pixel(value, index)
