"""Copying and filling boxes of elements that lie at any strides, whatever the operator calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.index_arithmetic import is_folded
from brickrt.ops.cpu.emit.llvm_types import Index, memory_type, vector
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.types import Boxes


@dataclass(frozen=True)
class CopyLoop:
    """One loop of a copy: indices [lo, hi), strides in elements, and `size`, more than which hi - lo never is.

    With `src_room` or `dst_room`, that memory holds so many elements from index 0 on, of which those outside [lo, hi)
    are nobody's (the tail lanes of a blocked tensor): a read may touch them, a write may set them.
    """

    lo: Index
    hi: Index
    src: int
    dst: int
    size: int
    src_room: int = 0
    dst_room: int = 0

    @property
    def whole(self) -> bool:
        """[0, size), known when the kernel is compiled."""
        return is_folded(self.lo, self.hi) and self.lo == 0 and self.hi == self.size


def raw(dtype: np.dtype) -> np.dtype:
    """The unsigned integer of the same width: a copy moves bits."""
    return np.dtype(f"u{dtype.itemsize}")


def row_lanes(dtype: np.dtype, isa: Isa) -> int:
    """Elements in a vector register."""
    return max(isa.lanes * 4 // dtype.itemsize, 1)


def whole_axes(boxes: Boxes, shape: Sequence[int]) -> tuple[np.ndarray, list[tuple[int, ...]]]:
    """Classes of boxes by the axes that they cover completely (1) or not (0)."""
    flags = (boxes.lo == 0) & (boxes.hi == np.asarray(shape, np.int64).reshape(1, -1))
    classes, index = np.unique(flags.astype(np.int64), axis=0, return_inverse=True)
    return index.reshape(-1), [tuple(row) for row in classes.tolist()]


def logical_ranges(f: FunctionEmitter, out: Operand, whole: Sequence[int] = ()) -> list[tuple[Index, Index]]:
    """The ranges of a kernel's box; constants along the axes that `whole` (see `whole_axes`) marks."""
    flags = whole or (0,) * out.type.rank
    return [(0, e) if flags[axis] else f.box(axis) for axis, e in enumerate(out.shape)]


def stored_ranges(f: FunctionEmitter, out: Operand, whole: Sequence[int] = ()) -> list[tuple[Index, Index]]:
    """As `logical_ranges`, with axis 1 of a blocked tensor counted in blocks."""
    ranges = logical_ranges(f, out, whole)
    if out.block > 1:
        ranges[1] = whole_blocks(f, *ranges[1], out.block)
    return ranges


def whole_blocks(f: FunctionEmitter, lo: Index, hi: Index, block: int) -> tuple[Index, Index]:
    """The blocks of channels [lo, hi); lo is a multiple of `block`, or the number of channels where there are none."""
    first, last = (f.div(f.add(bound, block - 1), block) for bound in (lo, hi))
    return first, last


def stored_shape(operand: Operand) -> tuple[int, ...]:
    """The shape with axis 1 of a blocked tensor counted in blocks."""
    n, *rest = operand.shape or (1,)
    if operand.block == 1:
        return operand.shape
    return (n, operand.channel_blocks, *rest[1:])


def lane_spans(block: int) -> list[CopyLoop]:
    """The innermost loop over the channels of a block; none for plain tensors."""
    return [CopyLoop(0, block, 1, 1, block)] if block > 1 else []


def merge(f: FunctionEmitter, spans: Sequence[CopyLoop]) -> list[CopyLoop]:
    """Fewer, longer loops: an axis covered completely joins the one outside it where the strides allow."""
    merged: list[CopyLoop] = []
    for span in spans:
        if span.whole and span.size == 1:
            continue
        outer = merged[-1] if merged else None
        if outer and span.whole and (outer.src, outer.dst) == (span.size * span.src, span.size * span.dst):
            lo, hi = f.mul(outer.lo, span.size), f.mul(outer.hi, span.size)
            merged[-1] = replace(span, lo=lo, hi=hi, size=outer.size * span.size, src_room=0, dst_room=0)
        else:
            merged.append(span)
    return merged


def strips(f: FunctionEmitter, lo: Index, hi: Index, step: int, body: Callable[[Index, Index], None]) -> None:
    """Calls body(first, count) for strips of `step` indices, then once more, with its own code, for what is left."""
    hi = f.maximum(lo, hi)
    left = f.rem(f.sub(hi, lo), step)
    full = f.sub(hi, left)
    if not (isinstance(lo, int) and isinstance(full, int) and lo == full):
        with f.loop(lo, full, step) as first:
            body(first, step)
    if not isinstance(left, int):
        count = f.value(left)
        with f.when(f.b.icmp_signed(">", count, f.value(0))):
            body(full, count)
    elif left:
        body(full, left)


def powers_of_two(f: FunctionEmitter, count: Index, below: int, body: Callable[[Index, int], None]) -> None:
    """Calls body(first, width) for pieces of `count` < `below` indices, each a power of two, the widest first."""
    first: Index = 0
    width = below // 2
    while width:
        if isinstance(count, int):
            if count & width:
                body(first, width)
                first = f.add(first, width)
        else:
            part = f.b.and_(f.value(count), f.value(width))
            with f.when(f.b.icmp_signed("!=", part, f.value(0))):
                body(first, width)
            first = f.add(first, part)
        width //= 2


def longest(spans: Sequence[CopyLoop], fits: Callable[[CopyLoop], bool]) -> CopyLoop | None:
    """The span of the largest size above 1 among those that fit."""
    return max((s for s in spans if s.size > 1 and fits(s)), key=lambda s: s.size, default=None)


@dataclass(frozen=True)
class StridedMemory:
    """A base address and how far from it, in elements, index 0 of all spans lies."""

    base: ir.Value
    offset: Index = 0

    def moved(self, f: FunctionEmitter, *distance: Index) -> StridedMemory:
        """The same memory, so many elements further."""
        return replace(self, offset=f.add(self.offset, *distance))


@dataclass(frozen=True)
class Mover:
    """Emits copies of elements of one width; `dtype` is an unsigned integer (see `raw`)."""

    f: FunctionEmitter
    dtype: np.dtype
    isa: Isa

    @property
    def masks(self) -> bool:
        """Whether the machine has masked loads and stores of such elements; of narrower ones, part of a vector is moved
        in pieces (`powers_of_two`)."""
        return self.dtype.itemsize >= 4

    def row(self, src: StridedMemory, dst: StridedMemory, row: CopyLoop) -> None:
        """Copies one span whose strides are 1 on both sides."""
        room = max(row.src_room, row.dst_room)
        if row.whole and room:
            mask = self.f.tail_mask(row.size, room)
            value = self.f.load(src.base, src.offset, self.dtype, room, None if row.src_room else mask)
            self.f.store(value, dst.base, dst.offset, self.dtype, room, None if row.dst_room else mask)
            return
        lanes = row_lanes(self.dtype, self.isa)
        strips(self.f, row.lo, row.hi, lanes, lambda i, count: self._chunk(src, dst, i, lanes, count))

    def _chunk(self, src: StridedMemory, dst: StridedMemory, i: Index, lanes: int, count: Index) -> None:
        """`count` of `lanes` adjacent elements."""
        f, partial = self.f, count != lanes
        if partial and not self.masks:

            def piece(first: Index, width: int) -> None:
                value = f.load(src.base, f.add(src.offset, i, first), self.dtype, width)
                f.store(value, dst.base, f.add(dst.offset, i, first), self.dtype, width)

            powers_of_two(f, count, lanes, piece)
            return
        mask = f.tail_mask(count, lanes) if partial else None
        value = f.load(src.base, f.add(src.offset, i), self.dtype, lanes, mask)
        f.store(value, dst.base, f.add(dst.offset, i), self.dtype, lanes, mask)

    def repeat(self, src: StridedMemory, dst: StridedMemory, row: CopyLoop) -> None:
        """Writes one element to all of a span whose stride is 1 in the destination. Where the span is empty,
        that element may lie before what is there of the source."""
        f, lanes = self.f, row_lanes(self.dtype, self.isa)
        with f.when(f.b.icmp_signed("<", f.value(row.lo), f.value(row.hi))):
            value = f.load(src.base, src.offset, self.dtype)
            strips(f, row.lo, row.hi, lanes, lambda i, n: _fill(f, dst.moved(f, i), value, self.dtype, lanes, n))

    def one(self, src: StridedMemory, dst: StridedMemory) -> None:
        """Copies one element."""
        self.f.store(self.f.load(src.base, src.offset, self.dtype), dst.base, dst.offset, self.dtype)

    def scalars(self, src: StridedMemory, dst: StridedMemory, spans: Sequence[CopyLoop]) -> None:
        """Any strides, one element at a time."""
        with self.f.loops([(s.lo, s.hi) for s in spans]) as at:
            self.one(*self.at(src, dst, spans, at))

    def at(
        self, src: StridedMemory, dst: StridedMemory, spans: Sequence[CopyLoop], at: Sequence[Index]
    ) -> tuple[StridedMemory, StridedMemory]:
        """Both places at indices of `spans`."""
        f = self.f
        return src.moved(f, f.dot(at, [s.src for s in spans])), dst.moved(f, f.dot(at, [s.dst for s in spans]))


def fill_spans(
    f: FunctionEmitter, spans: Sequence[CopyLoop], dst: StridedMemory, value: ir.Constant, dtype: np.dtype, isa: Isa
) -> None:
    """Sets all elements to `value`, a constant of the raw `dtype`; the sources' strides do not count."""
    spans = merge(f, [replace(s, src=s.dst) for s in spans])
    row = longest(spans, lambda s: s.dst == 1)
    if row is None:
        with f.loops([(s.lo, s.hi) for s in spans]) as at:
            f.store(value, dst.base, f.add(dst.offset, f.dot(at, [s.dst for s in spans])), dtype)
        return
    outer = [s for s in spans if s is not row]
    lanes = row_lanes(dtype, isa)
    with f.loops([(s.lo, s.hi) for s in outer]) as at:
        place = dst.moved(f, f.dot(at, [s.dst for s in outer]))
        strips(f, row.lo, row.hi, lanes, lambda i, count: _fill(f, place.moved(f, i), value, dtype, lanes, count))


def _fill(f: FunctionEmitter, dst: StridedMemory, value: ir.Value, dtype: np.dtype, lanes: int, count: Index) -> None:
    if count == lanes:
        f.store(f.splat(value, lanes), dst.base, dst.offset, dtype, lanes)
        return

    def piece(first: Index, width: int) -> None:
        f.store(f.splat(value, width), dst.base, f.add(dst.offset, first), dtype, width)

    powers_of_two(f, count, lanes, piece)


def zero_of(dtype: np.dtype, lanes: int) -> ir.Constant:
    """Zero in every lane, as elements of `dtype` lie in memory."""
    return ir.Constant(vector(memory_type(dtype), lanes), None if lanes > 1 else 0)
