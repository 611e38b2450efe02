"""Strided copies: by vectors where input and output are contiguous along one dimension, else by tiles.

Tiles go through shared memory, so that reads and writes of global memory are both contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from brickrt.ops.cuda.operand import Operand
from brickrt.ops.cuda.printing.box_walk import BoxWalk, WalkedOperand, bits_ctype, offset_literal
from brickrt.ops.cuda.printing.functions import declare_pointer

TILE_BYTES = 16384
SHORT_SIDE = 64
SHORTEST_SIDE = 4


@dataclass(frozen=True)
class Copy:
    """A copy of input `slot`: `source` says where it has the element of each output index.

    `cut` = (dimension, lo, hi) restricts it to indices of that range; `largest` are the extents of the largest box.
    """

    out: Operand
    source: WalkedOperand
    slot: int = 0
    cut: tuple[int, int, int] | None = None
    largest: tuple[int, ...] = ()

    @property
    def start(self) -> int:
        """Where the part begins along the dimension of `cut`; 0 without one."""
        return self.cut[1] if self.cut else 0

    @property
    def end(self) -> int:
        """Where the part ends along the dimension of `cut`; 0 without one."""
        return self.cut[2] if self.cut else 0

    @cached_property
    def walk(self) -> BoxWalk:
        """The walk over the box, together with the input."""
        return BoxWalk(self.out, (self.source,))

    def emit(self) -> list[str]:
        """The copy as a block of statements."""
        names = [
            declare_pointer("y", 0, bits_ctype(self.out.dtype)),
            declare_pointer("x", 1 + self.slot, self.source.type),
        ]
        return ["{", *names, *(self._direct() if self.across is None else self._tiled(self.across)), "}"]

    @property
    def shared(self) -> int:
        """Bytes of shared memory for a tile."""
        if self.across is None:
            return 0
        a, b = self._tile(self.across)
        return self._pitch(a) * b * self.source.itemsize

    @cached_property
    def across(self) -> int | None:
        """The number, among the walk's dimensions, of the one along which the input is contiguous, if that takes tiles.

        None where it is the output's innermost dimension as well, or where boxes are short along either: then a warp
        reads and writes whole sectors anyway.
        """
        dims, strides = self.walk.dims, self.source.strides
        if not dims or self.out.strides[dims[-1]] != 1 or strides[dims[-1]] in (0, 1):
            return None
        found = next((k for k, d in enumerate(dims) if strides[d] == 1), None)
        short = found is None or min(self._reach(found), self._reach(len(dims) - 1)) <= SHORTEST_SIDE
        return None if short else found

    def _cut(self) -> str:
        return "" if self.cut is None else ", {}, {}, {}".format(*self.cut)

    def _direct(self) -> list[str]:
        vector, kind = self.walk.vector, self.source.type
        load = f"a[u] = {self.walk.read(self.source, vector, 'x', 'p[u]')};"
        loads = [(f"brick::Vector<{kind}, {vector}> a[u]", load)]
        return self.walk.loop(vector, self.walk.unroll(vector), loads, ["const auto r = a[u];"], self._cut())

    def _tiled(self, across: int) -> list[str]:
        a, b = self._tile(across)
        inner, other = self.walk.dims[-1], self.walk.dims[across]
        apart = [offset_literal(s) for s in (self.source.strides[inner], self.out.strides[other])]
        corner = [self.walk.corner(s, "w.i", shift) for s, shift in self._ends()]
        sizes = f"{self._pitch(a)}, {a}, {b}"
        return [
            f"for ({self.walk.tiles(across, a, b)} w(s{self._cut()}); w.more(); w.next())",
            f"brick::exchange<{sizes}>(x + ({corner[0]}), {apart[0]}, y + ({corner[1]}), {apart[1]}, "
            f"w.na, w.nb, ({self.source.type}*)shared);",
        ]

    def _ends(self) -> list[tuple[Sequence[int], int]]:
        return [(self.source.strides, self.source.shift), (self.out.strides, 0)]

    def _tile(self, across: int) -> tuple[int, int]:
        """Elements along the output's innermost dimension and along the input's, powers of two."""
        room = TILE_BYTES // max(4, self.source.itemsize)
        a = min(SHORT_SIDE, self._reach(len(self.walk.dims) - 1))
        b = min(room // a, self._reach(across))
        return min(room // b, self._reach(len(self.walk.dims) - 1)), b

    def _reach(self, k: int) -> int:
        """The most elements that a box has along a dimension, joined ones included; up to the next power of two."""
        dims, total = self.walk.dims, 1
        while True:
            extent = self.out.shape[dims[k]]
            asked = self.largest[dims[k]] if self.largest else extent
            total *= max(1, asked)
            if k == 0 or asked < extent or not self.walk.joins >> k & 1:
                return 1 << math.ceil(math.log2(total))
            k -= 1

    def _pitch(self, a: int) -> int:
        """Elements from row to row of a tile: a bank more than a row, so that columns lie in different banks."""
        return a + max(1, 4 // self.source.itemsize)
