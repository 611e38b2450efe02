"""Copying and filling boxes of elements that lie at any strides, whatever the operator calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit import Fn, Index, memory_type, vector
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.types import Boxes


@dataclass(frozen=True)
class Span:
    """One loop of a copy: indices [lo, hi), strides in elements, and `size`, more than which hi - lo never is.

    `room` > 0: both memories hold that many elements from index 0 on, of which those outside [lo, hi) are nobody's
    (the tail lanes of a blocked tensor): a read may touch them and a write may set them.
    """

    lo: Index
    hi: Index
    src: int
    dst: int
    size: int
    room: int = 0

    @property
    def whole(self) -> bool:
        """[0, size), known when the kernel is compiled."""
        return (self.lo, self.hi) == (0, self.size) if isinstance(self.lo, int) and isinstance(self.hi, int) else False


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


def logical_ranges(f: Fn, out: Operand, whole: Sequence[int] = ()) -> list[tuple[Index, Index]]:
    """The ranges of a kernel's box; constants along the axes that `whole` (see `whole_axes`) marks."""
    flags = whole or (0,) * out.type.rank
    return [(0, e) if flags[axis] else f.box(axis) for axis, e in enumerate(out.shape)]


def stored_ranges(f: Fn, out: Operand, whole: Sequence[int] = ()) -> list[tuple[Index, Index]]:
    """As `logical_ranges`, with axis 1 of a blocked tensor counted in blocks."""
    ranges = logical_ranges(f, out, whole)
    if out.block > 1:
        lo, hi = ranges[1]
        ranges[1] = f.div(lo, out.block), f.div(f.add(hi, out.block - 1), out.block)
    return ranges


def stored_shape(operand: Operand) -> tuple[int, ...]:
    """The shape with axis 1 of a blocked tensor counted in blocks."""
    n, *rest = operand.shape or (1,)
    if operand.block == 1:
        return operand.shape
    return (n, operand.channel_blocks, *rest[1:])


def lane_spans(block: int) -> list[Span]:
    """The innermost loop over the channels of a block; none for plain tensors."""
    return [Span(0, block, 1, 1, block)] if block > 1 else []


def merge(spans: Sequence[Span]) -> list[Span]:
    """Fewer, longer loops: an axis covered completely joins the one outside it where the strides allow."""
    merged: list[Span] = []
    for span in spans:
        if span.whole and span.size == 1:
            continue
        outer = merged[-1] if merged else None
        joint = outer and span.whole and not span.room and outer.src == span.size * span.src
        if outer and joint and outer.dst == span.size * span.dst:
            lo, hi = (_scaled(bound, span.size) for bound in (outer.lo, outer.hi))
            merged[-1] = replace(span, lo=lo, hi=hi, size=outer.size * span.size)
        else:
            merged.append(span)
    return merged
