"""The input transform of a Winograd convolution whose input has few channels, and lies plain.

A tile's inputs are gathered one by one, so that a vector holds all channels of all residues modulo the strides of one
of its n×n places: a first layer of 7×7 taps at stride 2 on three channels has twelve.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import I64, Index, zeros
from brickrt.ops.cpu.emit.magnitudes import kept_lanes, lanes_before
from brickrt.ops.cpu.winograd.frame import WinogradFrame, WinogradTile
from brickrt.ops.cpu.winograd.input_transform import InputTransform, slot
from brickrt.ops.cpu.winograd.tile_ranges import TileRange


class GatheredInput(InputTransform):
    """Emits the input transform of a plain input."""

    def __init__(self, frame: WinogradFrame) -> None:
        super().__init__(frame)
        f, k = self.f, self.k
        self.zero = ir.Constant(frame.kind.element, 0.0)
        self.places = f.address(frame.m, k.axes.planes * k.plane_out, frame.dtype)
        with f.loop(0, k.depth_in * k.axes.planes) as at:  # lanes that nobody fills take part in the transform
            f.store(zeros(frame.kind), self.places, f.mul(at, k.lanes), frame.dtype, k.lanes)

    def plane(self, base: Index, corner: Sequence[Index], guarded: bool, tile: WinogradTile, z: Index) -> None:
        """Gathers the tile's inputs, then transforms each vector of them."""
        f, k, (down, across) = self.f, self.k, self.axes
        self.gather(base, corner, guarded)
        found = TileRange(self.frame)
        with f.loop(0, k.depth_in) as block:
            start = f.address(self.places, f.mul(block, k.axes.planes * k.lanes), self.frame.dtype)

            def load(i: Index, j: int, start: ir.Value = start) -> ir.Value:
                return f.load(start, f.mul(f.add(f.mul(i, across.n), j), k.lanes), self.frame.dtype, k.lanes)

            self.store([[load(i, j) for j in range(across.n)] for i in range(down.n)], tile, z, block)
            found.look(load, kept_lanes(k.lanes), lanes_before(f, k.lanes, block, k.ins[0].shape[1]))
        self.suspects.note(self.suspects.at(slot(self.frame, z), tile), found.suspect())

    def gather(self, base: Index, corner: Sequence[Index], guarded: bool) -> None:
        """Fills the places: of each channel, row by row."""
        f, x, (down, _) = self.f, self.k.ins[0], self.axes
        with f.loop(0, x.shape[1]) as c, f.loop(0, down.n) as i, f.loop(0, down.residues) as residue:
            y, in_rows = f.add(corner[0], f.mul(i, down.step), residue), None
            if guarded:
                y, in_rows = self.clamped(y, self.frame.plane[0])
            row = f.add(base, f.mul(c, x.strides[1]), f.mul(y, self.strides[0]))
            with f.when(self.is_read(i, residue)):
                self.gather_row(row, corner[1], in_rows, (c, i, residue))

    def is_read(self, i: Index, residue: Index) -> ir.Value:
        """Whether outputs read a row of a tile of a residue: of those with a tap less, the last stays zero."""
        f, down = self.f, self.axes[0]
        last = f.b.icmp_signed("==", f.value(i), I64(down.n - 1))
        return f.b.not_(f.b.and_(last, f.b.icmp_signed(">=", f.value(residue), I64(down.whole))))

    def gather_row(self, row: Index, corner: Index, in_rows: ir.Value | None, at: tuple[Index, Index, Index]) -> None:
        """One channel in one row; zero for what may not be read, and for what no output reads (see `is_read`).
        `in_rows` is None where all may."""
        f, frame, (_, across) = self.f, self.frame, self.axes
        for j in range(across.n):
            for residue in range(across.residues if j < across.n - 1 else across.whole):
                x, ok = f.add(corner, j * across.step + residue), None
                if in_rows is not None:
                    x, inside = self.clamped(x, frame.plane[1])
                    ok = f.b.and_(in_rows, inside)
                value = f.load(frame.x, f.add(row, f.mul(x, self.strides[1])), frame.input_type)
                value = value if ok is None else f.b.select(ok, value, self.zero)
                f.store(value, self.places, self.place(at, j, residue), frame.dtype)

    def place(self, at: tuple[Index, Index, Index], j: int, residue: int) -> Index:
        """Where the j-th input of a residue across belongs; `at` is its channel, row of the tile, and residue down."""
        f, k, (c, i, down) = self.f, self.k, at
        number = f.add(f.mul(self.frame.residue((down, residue)), k.ins[0].shape[1]), c)
        place = f.add(f.mul(i, self.axes[1].n), j)
        if k.depth_in > 1:
            place = f.add(place, f.mul(f.div(number, k.lanes), k.axes.planes))
            number = f.rem(number, k.lanes)
        return f.add(f.mul(place, k.lanes), number)
