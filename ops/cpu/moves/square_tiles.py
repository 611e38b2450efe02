"""Copies where what is adjacent in one memory is far apart in the other: square tiles turned in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.index_arithmetic import is_folded
from brickrt.ops.cpu.emit.llvm_types import I1, Index
from brickrt.ops.cpu.moves.few_rows import AVX512_LANES, WORD, FewRows
from brickrt.ops.cpu.moves.interleaved import Interleaved, lie_by_turns
from brickrt.ops.cpu.moves.spans import CopyLoop, Mover, StridedMemory, longest, merge, strips, zero_of


def copy_spans(mover: Mover, spans: Sequence[CopyLoop], src: StridedMemory, dst: StridedMemory) -> None:
    """Copies a box: by rows where some axis is adjacent on both sides, or one element is there for all of a row; by
    tiles where each side has its own."""
    f = mover.f
    spans = merge(f, spans)
    row = longest(spans, lambda s: s.src == 1 and s.dst == 1)
    across, along = longest(spans, lambda s: s.dst == 1), longest(spans, lambda s: s.src == 1)
    equal = across if not row and across and across.src == 0 else None
    alone = row or equal
    inner = [alone] if alone else [across, along] if across and along else []
    outer = [s for s in spans if all(s is not i for i in inner)]
    if not inner:
        mover.scalars(src, dst, spans)
        return
    with f.loops([(s.lo, s.hi) for s in outer]) as at:
        here, there = mover.at(src, dst, outer, at)
        if row:
            mover.row(here, there, row)
        elif equal:
            mover.repeat(here, there, equal)
        elif across and along:
            Tiles(mover, across, along).emit(here, there)


@dataclass(frozen=True)
class Tiles:
    """A copy over two spans: `across` is adjacent in the destination, `along` in the source."""

    mover: Mover
    across: CopyLoop
    along: CopyLoop

    @property
    def side(self) -> int:
        """Rows and columns of a tile."""
        return self.mover.isa.lanes

    def emit(self, src: StridedMemory, dst: StridedMemory) -> None:
        """Copies from `src` to `dst`."""
        f, a, b = self.mover.f, self.across, self.along

        # Inner tiles follow one another in the destination, which is faster than in the source.
        def line(j: Index, columns: Index) -> None:
            strips(f, a.lo, a.hi, self.side, lambda i, rows: self._tile(src, dst, i, rows, j, columns))

        strips(f, b.lo, b.hi, self.side, line)

    def _tile(self, src: StridedMemory, dst: StridedMemory, i: Index, rows: Index, j: Index, columns: Index) -> None:
        """Rows [i, i + rows) of `across`, columns [j, j + columns) of `along`."""
        f, a, b = self.mover.f, self.across, self.along
        src = src.moved(f, f.mul(i, a.src), f.mul(j, b.src))
        dst = dst.moved(f, f.mul(i, a.dst), f.mul(j, b.dst))
        if self._makes_words(rows, columns):
            words = FewRows(self.mover, int(rows), a.src)
            words.emit(src, dst, columns)
            return
        if self._is_apart(rows):
            Interleaved(self.mover, b.size, b.dst, self.side).apart(src, dst, rows)
            return
        if self._is_together(columns):
            Interleaved(self.mover, a.size, a.src, self.side).together(src, dst, columns)
            return
        if not self.mover.masks and (rows, columns) != (self.side, self.side):
            self.mover.scalars(
                src, dst, [CopyLoop(0, columns, 1, b.dst, self.side), CopyLoop(0, rows, a.src, 1, self.side)]
            )
            return
        lines = self._read(src, rows, columns)
        self._write(turn(f, lines), dst, rows, columns)

    def _is_apart(self, rows: Index) -> bool:
        """Whether the source has the few columns by turns, and `rows` of each can be moved together."""
        return lie_by_turns(self.along, self.across, self.across.src) and (self.mover.masks or rows == self.side)

    def _is_together(self, columns: Index) -> bool:
        """Whether the destination has the few rows by turns, and `columns` of each can be moved together."""
        return lie_by_turns(self.across, self.along, self.along.dst) and (self.mover.masks or columns == self.side)

    def _makes_words(self, rows: Index, columns: Index) -> bool:
        """Whether the tile's few bytes of each column are a word, and the rest of a block is nobody's."""
        a, b = self.across, self.along
        few = self.mover.dtype.itemsize == 1 and is_folded(rows) and rows <= WORD.itemsize and is_folded(a.lo)
        adjacent = a.lo == 0 and a.dst_room == b.dst == self.side
        return few and adjacent and (columns == self.side or self.side == AVX512_LANES)

    def _read(self, src: StridedMemory, rows: Index, columns: Index) -> list[ir.Value]:
        """The tile's rows; zero where there is none."""
        f, dtype, side = self.mover.f, self.mover.dtype, self.side
        lines = []
        for r in range(side):
            if isinstance(rows, int) and r >= rows:
                lines.append(zero_of(dtype, side))
                continue
            mask = self._mask(r, rows, columns, self.along.src_room)
            lines.append(f.load(src.base, f.add(src.offset, r * self.across.src), dtype, side, mask))
        return lines

    def _write(self, lines: list[ir.Value], dst: StridedMemory, rows: Index, columns: Index) -> None:
        f, dtype, side = self.mover.f, self.mover.dtype, self.side
        for c in range(side if not isinstance(columns, int) else columns):
            mask = self._mask(c, columns, rows, self.across.dst_room)
            f.store(lines[c], dst.base, f.add(dst.offset, c * self.along.dst), dtype, side, mask)

    def _mask(self, line: int, lines: Index, count: Index, room: int) -> ir.Value | None:
        """Which of a line's `count` elements are touched: none from line `lines` on; None stands for all."""
        f, side = self.mover.f, self.side
        free = count == side or (isinstance(count, int) and room == side)
        mask = None if free else f.tail_mask(count, side)
        if isinstance(lines, int):
            return mask
        full = ir.Constant(ir.VectorType(I1, side), [1] * side) if mask is None else mask
        on = f.b.icmp_signed("<", f.value(line), f.value(lines))
        return f.b.select(on, full, ir.Constant(ir.VectorType(I1, side), None))


def turn(f: FunctionEmitter, lines: list[ir.Value]) -> list[ir.Value]:
    """Transposes a square of vectors in log2 steps; step s swaps the off-diagonal squares of side s."""
    side = len(lines)
    step = side // 2
    while step:
        keep = [k if not k & step else side + k - step for k in range(side)]
        swap = [k + step if not k & step else side + k for k in range(side)]
        result = list(lines)
        for r in range(side):
            if not r & step:
                low, high = lines[r], lines[r + step]
                result[r] = f.shuffle(low, high, keep)
                result[r + step] = f.shuffle(low, high, swap)
        lines, step = result, step // 2
    return lines
