"""A register tile of accumulators, and tiles of its form that are kept in a worker's workspace."""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.emit import Fn, Index
from brickrt.ops.cpu.products import Accumulators


class KeptTile:
    """Kept tiles lie at offsets `at` in elements of `work`, pixel by pixel."""

    def __init__(self, acc: Accumulators, work: ir.Value) -> None:
        self.f: Fn = acc.f
        self.acc, self.work = acc, work

    def each(self) -> list[tuple[int, int]]:
        """(block, pixel) of every vector, in memory's order."""
        return [(j, t) for t in range(self.acc.pixels) for j in range(self.acc.blocks)]

    def slot(self, j: int, t: Index) -> Index:
        """Where a vector lies in a tile that is kept."""
        return self.f.add(self.f.mul(t, self.acc.blocks * self.acc.lanes), j * self.acc.lanes)

    def load(self, at: Index, j: int, t: Index) -> ir.Value:
        return self.f.load(self.work, self.f.add(at, self.slot(j, t)), self.acc.dtype, self.acc.lanes)

    def store(self, value: ir.Value, at: Index, j: int, t: Index) -> None:
        self.f.store(value, self.work, self.f.add(at, self.slot(j, t)), self.acc.dtype, self.acc.lanes)

    def clear(self) -> None:
        for j, t in self.each():
            self.f.set(self.acc.places[j][t], ir.Constant(self.acc.kind, None))

    def keep(self, at: Index) -> None:
        for j, t in self.each():
            self.store(self.acc.value(j, t), at, j, t)

    def restore(self, at: Index) -> None:
        for j, t in self.each():
            self.f.set(self.acc.places[j][t], self.load(at, j, t))

    def add(self, at: Index) -> None:
        for j, t in self.each():
            self.f.set(self.acc.places[j][t], self.f.b.fadd(self.load(at, j, t), self.acc.value(j, t)))
