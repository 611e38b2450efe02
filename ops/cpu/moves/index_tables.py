"""Tables of indices counted in blocks, and tables behind the sizes of a kernel."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from llvmlite import ir

from brickrt.ops.affine_tables import Affine
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.emit.sizes import Size

INT64 = np.dtype(np.int64)


def in_blocks(axis: Affine, extent: int, block: int) -> Affine | None:
    """An axis of `extent` channels counted in blocks; None where blocks are not read whole and in order."""
    if axis.lo == axis.hi:
        return Affine(0, 1, 0, 0)
    aligned = axis.start % block == 0 and axis.lo % block == 0 and (axis.hi % block == 0 or axis.hi == extent)
    if not aligned or (axis.step != 1 and axis.hi - axis.lo > 1):
        return None
    return Affine(axis.start // block, 1, axis.lo // block, -(-axis.hi // block))


class LookUps:
    """Finds the tables of `Kernel.look_ups`, one after the other."""

    def __init__(self, f: FunctionEmitter) -> None:
        self.f = f
        self.words: Index = 0

    @cached_property
    def base(self) -> ir.Value:
        """Where the first one begins."""
        return self.f.look_ups()

    def following(self, count: int | Size, dtype: np.dtype) -> ir.Value:
        """The address of the next table, of `count` elements."""
        place = self.f.address(self.base, self.words, INT64)
        self.words = self.f.add(self.words, -(-(count * dtype.itemsize) // INT64.itemsize))
        return place
