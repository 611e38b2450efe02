"""The outputs of a register tile in bytes: four pixels that lie side by side are rounded, packed and stored together.

    block of 16 channels    pixel 0 ├──┤  1 ├──┤  2 ├──┤  3 ├──┤    one store of 64 bytes, or 32 of 8 channels

Rounding a vector alone takes an instruction for each of its bounds, and two to take every fourth byte of it. Packing
four of them has bounds of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.operands.epilogue import BoundEpilogue, offset_of

PIXELS_AT_A_TIME = 4
MASKED = 16  # lanes of vectors that instructions store some bytes of


class PackedPixels:
    """Finishes the outputs `out` of an epilogue at the address `base`, a block of channels after the other."""

    def __init__(self, f: FunctionEmitter, epilogue: BoundEpilogue, base: ir.Value, out: Operand) -> None:
        self.f, self.epilogue, self.base, self.out = f, epilogue, base, out

    def store(self, sums: Sequence[Sequence[ir.Value]], index: Callable[[int, Index], list[Index]]) -> None:
        """`sums[j][t]` are those of block `j` and pixel `t`, whose output lies at `index(j, t)`.

        A long expression is written once, in a loop, as `BoundEpilogue.each` has it.
        """
        f, count = self.f, len(sums[0])
        whole = count // PIXELS_AT_A_TIME * PIXELS_AT_A_TIME
        looped = whole if self.epilogue.epilogue.long and whole > PIXELS_AT_A_TIME else 0
        if looped:
            kept = self.keep([each[:looped] for each in sums])
            with f.loop(0, looped, PIXELS_AT_A_TIME) as first:
                for j in range(len(sums)):
                    places = [index(j, f.add(first, t)) for t in range(PIXELS_AT_A_TIME)]
                    self.group([kept(j, f.add(first, t)) for t in range(PIXELS_AT_A_TIME)], places)
        for j, each in enumerate(sums):
            for start in range(looped, count, PIXELS_AT_A_TIME):
                values = each[start : start + PIXELS_AT_A_TIME]
                self.group(values, [index(j, start + t) for t in range(len(values))])

    def keep(self, sums: Sequence[Sequence[ir.Value]]) -> Callable[[int, Index], ir.Value]:
        """Puts vectors on the stack: gives what loads that of a block and a pixel."""
        f, kind, count = self.f, sums[0][0].type, len(sums[0])
        kept = f.local(kind, count=len(sums) * count)

        def place(number: Index) -> ir.Value:
            return f.b.gep(kept, [f.value(number)], source_etype=kind)

        for number, value in enumerate(chain.from_iterable(sums)):
            f.b.store(value, place(number))
        return lambda j, t: f.b.load(place(f.add(t, j * count)), typ=kind)

    def group(self, values: Sequence[ir.Value], places: Sequence[list[Index]]) -> None:
        """Finishes up to four pixels that lie side by side, whose outputs have these indices."""
        f = self.f
        to = f.address(self.base, offset_of(f, self.out, places[0]), self.out.dtype)
        packed = self.epilogue.four(values, places)
        lanes = values[0].type.count
        size = lanes * len(values)
        if len(values) == PIXELS_AT_A_TIME - 1 and lanes == MASKED:
            f.store(
                packed, to, 0, self.out.dtype, lanes * PIXELS_AT_A_TIME, f.tail_mask(size, lanes * PIXELS_AT_A_TIME)
            )
            return
        f.b.store(f.shuffle(packed, packed, range(size)) if len(values) < PIXELS_AT_A_TIME else packed, to, align=1)
