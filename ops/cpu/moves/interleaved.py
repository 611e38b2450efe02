"""A few lines whose elements lie by turns in one memory, and one behind the other in the second: pixels of three
colours, and a plane of each.

apart      r0 g0 b0 r1 g1 b1 …  →  r0 r1 r2 …  g0 g1 g2 …  b0 b1 b2 …
together   the other way

All vectors that are read or written are full, where tiles turned in registers would have a few elements in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.moves.spans import CopyLoop, Mover, StridedMemory

MOST_LINES = 8
"""Lines; each output vector is put together from as many vectors, one shuffle for each."""


def lie_by_turns(few: CopyLoop, many: CopyLoop, many_stride: int) -> bool:
    """Whether elements of all `few` lines lie side by side for each index of `many`. Asked of numbers alone: code that
    leaves sizes open is for fewer and for more lines."""
    if not (isinstance(few.size, int) and isinstance(many_stride, int)):
        return False
    rooms = few.src_room or few.dst_room or many.src_room or many.dst_room
    return few.whole and not rooms and 1 < few.size <= MOST_LINES and many_stride == few.size


@dataclass(frozen=True)
class Interleaved:
    """A copy of `lines` lines, `stride` elements apart where they lie one behind the other, in pieces of `side`."""

    mover: Mover
    lines: int
    stride: int
    side: int

    def apart(self, src: StridedMemory, dst: StridedMemory, count: Index) -> None:
        """The first `count` elements of each line, which lie by turns in `src`."""
        f, n = self.mover.f, self.lines
        turns = [self._load(src, k * self.side, self._left(count, k)) for k in range(n)]
        for line in range(n):
            picks = [divmod(line + n * element, self.side) for element in range(self.side)]
            self._store(joined(f, turns, picks), dst, line * self.stride, count)

    def together(self, src: StridedMemory, dst: StridedMemory, count: Index) -> None:
        """The first `count` elements of each line, which are to lie by turns in `dst`."""
        f, n = self.mover.f, self.lines
        rows = [self._load(src, line * self.stride, count) for line in range(n)]
        for k in range(n):
            places = [divmod(k * self.side + lane, n) for lane in range(self.side)]
            picks = [(line, element) for element, line in places]
            self._store(joined(f, rows, picks), dst, k * self.side, self._left(count, k))

    def _left(self, count: Index, vector: int) -> Index:
        """Elements of this vector and those behind it that are touched, of `count` of each line."""
        if count == self.side:
            return self.side
        return self.mover.f.sub(self.mover.f.mul(count, self.lines), vector * self.side)

    def _load(self, src: StridedMemory, at: int, count: Index) -> ir.Value:
        f = self.mover.f
        return f.load(src.base, f.add(src.offset, at), self.mover.dtype, self.side, self._mask(count))

    def _store(self, value: ir.Value, dst: StridedMemory, at: int, count: Index) -> None:
        f = self.mover.f
        f.store(value, dst.base, f.add(dst.offset, at), self.mover.dtype, self.side, self._mask(count))

    def _mask(self, count: Index) -> ir.Value | None:
        return None if count == self.side else self.mover.f.tail_mask(count, self.side)


def joined(f: FunctionEmitter, vectors: Sequence[ir.Value], picks: Sequence[tuple[int, int]]) -> ir.Value:
    """A vector of the lanes `picks`, (vector, lane) each."""
    side = len(picks)
    found, at = vectors[0], [lane if vector == 0 else 0 for vector, lane in picks]
    for k, vector in enumerate(vectors[1:], 1):
        found = f.shuffle(found, vector, [side + lane if of == k else at[i] for i, (of, lane) in enumerate(picks)])
        at = list(range(side))
    return found
