"""The outputs of a register tile, finished one by one while the next tile's products are summed.

    steps over channels    tile 1 ├────────────┤        tile 2 ├────────────┤
    outputs finished                              0 1 2 … of tile 1  ┘          the last tile's behind all others

Zen 4 has units for products and others for most of what quantizes a sum. A tile's products and then its outputs leave
half of them idle in turn, as it looks ahead over fewer instructions than either has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I64, Index

Finish = Callable[[ir.Value, list[Index]], None]
"""Stores an output: its sums, and its index."""


class LateEpilogue:
    """Keeps the sums of a tile of up to `most` pixels, vectors of type `kind`, until `finish` has been called for each.
    Their indices have `rank` numbers, of which the last is that of the pixel."""

    def __init__(self, f: FunctionEmitter, kind: ir.Type, most: int, rank: int, finish: Finish) -> None:
        self.f, self.kind, self.finish = f, kind, finish
        self.sums = f.local(kind, count=most)
        self.index = [f.variable(I64(0)) for _ in range(rank)]
        self.count, self.done = f.variable(I64(0)), f.variable(I64(0))

    def one(self, _: Index = 0) -> None:
        """Finishes an output, if one is left."""
        f = self.f
        with f.when(f.b.icmp_signed("<", f.read(self.done), f.read(self.count))):
            self.entry(f.read(self.done))
            f.change(self.done, f.b.add(f.read(self.done), I64(1)))

    def rest(self) -> None:
        """Finishes all that are left."""
        f = self.f
        with f.loop(f.read(self.done), f.read(self.count)) as number:
            self.entry(number)
        f.change(self.count, I64(0))
        f.change(self.done, I64(0))

    def entry(self, number: Index) -> None:
        """Finishes an output."""
        f = self.f
        value = f.b.load(self.place(number), typ=self.kind)
        *index, first = (f.read(at) for at in self.index)
        self.finish(value, [*index, f.add(first, number)])

    def put(self, sums: Sequence[ir.Value], index: Sequence[Index]) -> None:
        """Takes the sums of a tile whose first output lies at `index`; of the one before none are left."""
        f = self.f
        for number, value in enumerate(sums):
            f.b.store(value, self.place(number))
        for kept, at in zip(self.index, index, strict=True):
            f.change(kept, f.value(at))
        f.change(self.count, I64(len(sums)))

    def place(self, number: Index) -> ir.Value:
        """Where an entry's sums are kept."""
        return self.f.b.gep(self.sums, [self.f.value(number)], source_etype=self.kind)
