"""A register tile of accumulators, and tiles of its form that are spilled to a worker's workspace."""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index, zeros
from brickrt.ops.cpu.products.register_tile import Accumulators


class SpilledTile:
    """The accumulators `acc`, and spilled tiles at offsets `at`, in elements, of `work`; these lie pixel by pixel."""

    def __init__(self, acc: Accumulators, work: ir.Value) -> None:
        self.f: FunctionEmitter = acc.f
        self.acc, self.work = acc, work

    def each(self) -> list[tuple[int, int]]:
        """(block, pixel) of every vector, in memory's order."""
        return [(j, t) for t in range(self.acc.pixels) for j in range(self.acc.blocks)]

    def slot(self, j: int, t: Index) -> Index:
        """Where a vector lies in a spilled tile."""
        return self.f.add(self.f.mul(t, self.acc.blocks * self.acc.lanes), j * self.acc.lanes)

    def tile(self, at: Index) -> ir.Value:
        """Address of the tile spilled at `at`."""
        return self.f.address(self.work, at, self.acc.dtype)

    def load(self, tile: ir.Value, j: int, t: Index) -> ir.Value:
        """A vector of a spilled tile."""
        return self.f.load(tile, self.slot(j, t), self.acc.dtype, self.acc.lanes)

    def store(self, value: ir.Value, tile: ir.Value, j: int, t: Index) -> None:
        """Writes a vector of a spilled tile."""
        self.f.store(value, tile, self.slot(j, t), self.acc.dtype, self.acc.lanes)

    def clear(self) -> None:
        """Sets the accumulators to zero."""
        for j, t in self.each():
            self.acc.put(j, t, zeros(self.acc.kind))

    def spill(self, at: Index) -> None:
        """Stores the accumulators."""
        tile = self.tile(at)
        for j, t in self.each():
            self.store(self.acc.value(j, t), tile, j, t)

    def restore(self, at: Index) -> None:
        """Loads a spilled tile into the accumulators."""
        tile = self.tile(at)
        for j, t in self.each():
            self.acc.put(j, t, self.load(tile, j, t))

    def add(self, at: Index) -> None:
        """Adds a spilled tile to the accumulators."""
        tile = self.tile(at)
        for j, t in self.each():
            self.acc.put(j, t, self.f.b.fadd(self.load(tile, j, t), self.acc.value(j, t)))
