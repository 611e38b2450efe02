"""Operators on pixels that run as one: 1×1 convolutions, norms over channels, elementwise ones.

What an operator computes of a pixel depends on that pixel alone, so that a kernel can take some pixels from the first
operator to the last, and what is between stays where it computes: in registers, not in memory.

    x ─ Rowwise ─ Conv 1×1 ─ …   →   x ─ PixelChain
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Op, Slab
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.ops.regions import box_shape, settle
from brickrt.ops.types import Boxes, Shape, TensorType

CHANNELS = (1,)  # the axes of a norm of pixels


@dataclass(frozen=True)
class Link:
    """One operator of a chain. `reads` are its inputs: those of the chain by number, and from their count on the
    results of links before it."""

    op: Op
    reads: tuple[int, ...]


def is_pixelwise(op: Op, ins: Sequence[TensorType], out: TensorType) -> bool:
    """Whether each pixel of images [N, C, spatial…] is computed of the same pixel of all inputs that have pixels."""
    if out.rank < 3:
        return False
    if isinstance(op, Conv):
        moves = any(k != 1 for k in (*op.kernel, *op.strides)) or any((*op.pads, *op.pads_end))
        return not moves and op.groups == 1 and all(_fits(t, out) for t in ins[op.main :])
    if isinstance(op, Rowwise):
        return op.axes == CHANNELS and all(_fits(t, out) for t in ins)
    return isinstance(op, Map) and all(_fits(t, out) for t in ins)


def _fits(kind: TensorType, out: TensorType) -> bool:
    """Whether an operand has all pixels of an output, or one value for all of them."""
    pixels = kind.shape[2:] if kind.rank == out.rank else kind.shape[1:] if kind.rank == out.rank - 1 else ()
    return has_pixels(kind, out.shape) or (kind.rank in (0, out.rank - 1, out.rank) and all(e == 1 for e in pixels))


def keeps_channels(op: Op, place: int, kind: TensorType, out: TensorType) -> bool:
    """Whether an operator with output `out` reads each channel of input `place` for that channel of its output, or for
    a product."""
    factor = isinstance(op, Conv) and (place == 0 or (op.channel_scaled and place == op.main - 1))
    return factor or kind.shape[1] == out.shape[1]


def has_pixels(kind: TensorType, shape: Shape) -> bool:
    """Whether a tensor has a value for each pixel of an output of this shape."""
    return kind.rank == len(shape) and (kind.shape[0], *kind.shape[2:]) == (shape[0], *shape[2:])


@dataclass(frozen=True)
class PixelChain(Op):
    """`links` on `inputs` inputs, each pixelwise; the result of the last one is the output."""

    name: ClassVar[str] = "PixelChain"
    links: tuple[Link, ...]
    inputs: int

    def types(self, ins: Sequence[TensorType]) -> list[TensorType]:
        """Types of the inputs, and of the results of all links."""
        found = list(ins)
        for link in self.links:
            found.append(link.op.infer([found[k] for k in link.reads]))
        return found

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """The type of the last result. All results have the same pixels."""
        if len(ins) != self.inputs or not self.links:
            raise ValueError(f"PixelChain: {len(ins)} inputs and {len(self.links)} links, expected {self.inputs} and 1")
        found = self.types(ins)
        for link, kind in zip(self.links, found[self.inputs :], strict=True):
            if not is_pixelwise(link.op, [found[k] for k in link.reads], kind) or not has_pixels(found[-1], kind.shape):
                raise ValueError(f"PixelChain: {link.op.name} of {kind} does not compute pixels of {found[-1]}")
            inner = [(place, found[k]) for place, k in enumerate(link.reads) if k >= self.inputs]
            if not all(keeps_channels(link.op, place, t, kind) for place, t in inner):
                raise ValueError(f"PixelChain: {link.op.name} of {kind} repeats the channels of a result")
        return found[-1]

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """The pixels of the boxes, with all of their channels; constants as the links read them."""
        read = list(self._regions(i, boxes, ins))
        return reduce(Boxes.union, read) if read else settle(boxes, boxes.lo * 0, boxes.hi * 0, ins[i].shape)

    def _regions(self, i: int, boxes: Boxes, ins: Sequence[TensorType]) -> Iterator[Boxes]:
        """What each link reads of an input."""
        found = self.types(ins)
        for link, kind in zip(self.links, found[self.inputs :], strict=True):
            types = [found[k] for k in link.reads]
            for place in (p for p, k in enumerate(link.reads) if k == i):
                yield link.op.region(place, _all_channels(boxes, kind), types, kind)

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """Link by link, on the box's pixels; every result is rounded to its type."""
        if 0 in box_shape(box):
            return np.empty(box_shape(box), out.dtype)
        found, held = self.types(ins), list(slabs)
        for link, kind in zip(self.links, found[self.inputs :], strict=True):
            whole = _all_channels(box, kind)
            array = link.op.evaluate(whole, [held[k] for k in link.reads], [found[k] for k in link.reads], kind)
            held.append(Slab(array, tuple(whole.lo[0].tolist())))
        return held[-1].array[box.slices(0, held[-1].origin)]

    def flops(self, ins: Sequence[TensorType], out: TensorType) -> int:
        """Those of all links."""
        found = self.types(ins)
        kinds = zip(self.links, found[self.inputs :], strict=True)
        return sum(link.op.flops([found[k] for k in link.reads], kind) for link, kind in kinds)


def _all_channels(boxes: Boxes, kind: TensorType) -> Boxes:
    """The pixels of boxes with all channels of a tensor; empty ones stay so."""
    lo, hi = boxes.lo.copy(order="K"), boxes.hi.copy(order="K")
    lo[:, 1], hi[:, 1] = 0, kind.shape[1]
    return settle(boxes, lo, hi, kind.shape)
