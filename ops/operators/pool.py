"""Pooling windows that slide over x [N, C, spatial…]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import ClassVar, Literal

import numpy as np

from brickrt.ops.base import Op, Slab
from brickrt.ops.definitions.expressions import compute_type, round_to
from brickrt.ops.regions import box_shape, settle, window_region
from brickrt.ops.types import Boxes, Shape, TensorType, is_floating
from brickrt.ops.window import Window, check_window, read_padded

Ints = tuple[int, ...]


def lowest(dtype: np.dtype) -> float | int | bool:
    """The identity of max: the least value of a type."""
    if is_floating(dtype):
        return float("-inf")
    return False if dtype.kind == "b" else int(np.iinfo(dtype).min)


@dataclass(frozen=True)
class Pool(Op):
    """Max, average or Lp pooling (ONNX MaxPool, AveragePool, LpPool); `p` is the exponent of Lp.

    `ceil` rounds the number of outputs up; `count_include_pad` lets averages count padding.
    """

    name: ClassVar[str] = "Pool"
    kind: Literal["max", "average", "lp"]
    kernel: Ints
    strides: Ints
    dilations: Ints
    pads: Ints
    pads_end: Ints
    ceil: bool = False
    count_include_pad: bool = False
    p: int = 2

    @cached_property
    def window(self) -> Window:
        """The window that each output combines."""
        return Window(self.kernel, self.strides, self.dilations, self.pads)

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """Raises ValueError where no window fits."""
        (x,) = ins
        if x.rank != len(self.kernel) + 2:
            raise ValueError(f"Pool: input {x} does not fit kernel {list(self.kernel)}")
        settings = {"strides": self.strides, "dilations": self.dilations, "pads": self.pads, "pads_end": self.pads_end}
        check_window(self.name, x.rank - 2, **settings)
        spatial = tuple(self._extent(axis, e) for axis, e in enumerate(x.shape[2:]))
        if any(e < 1 for e in spatial):
            raise ValueError(f"Pool: input {x} is too small for kernel {list(self.kernel)}: output {list(spatial)}")
        return TensorType((*x.shape[:2], *spatial), x.dtype)

    def _extent(self, axis: int, extent: int) -> int:
        """Outputs along an axis; with `ceil`, no window starts beyond the last input element."""
        stride, before = self.strides[axis], self.pads[axis]
        room = extent + before + self.pads_end[axis] - self.window.spans[axis]
        if not self.ceil:
            return room // stride + 1
        count = -(-room // stride) + 1
        return count - 1 if (count - 1) * stride >= extent + before else count

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """The window's reach; channels are independent."""
        return settle(boxes, *self._reach(boxes), ins[0].shape)

    def _reach(self, boxes: Boxes) -> tuple[np.ndarray, np.ndarray]:
        channels = boxes.lo[:, 1], boxes.hi[:, 1]
        return window_region(boxes, self.window.reach(boxes.lo[:, 2:], boxes.hi[:, 2:]), channels)

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """Combines the views of all taps; padding is the identity of the combination."""
        shape = box_shape(box)
        if 0 in shape:
            return np.empty(shape, out.dtype)
        lo, hi = self._reach(box)
        dtype = compute_type(ins[0].dtype)
        fill = lowest(dtype) if self.kind == "max" else 0
        taps = self.window.taps(read_padded(slabs[0], lo[0], hi[0], fill, dtype), shape[2:])
        if self.kind == "max":
            result = reduce(np.maximum, taps)
        elif self.kind == "average":
            result = reduce(np.add, taps) / self._counts(box, ins[0].shape[2:])
        else:
            result = reduce(np.add, (np.abs(tap) ** self.p for tap in taps)) ** (1.0 / self.p)
        return round_to(np.array(result), out.dtype)

    def _counts(self, box: Boxes, extents: Shape) -> np.ndarray:
        """The divisor of every average of the box, [spatial…]; what `ceil` adds beyond the padding never counts."""
        per_axis = []
        for axis, extent in enumerate(extents):
            before, after = (self.pads[axis], self.pads_end[axis]) if self.count_include_pad else (0, 0)
            starts = np.arange(box.lo[0, 2 + axis], box.hi[0, 2 + axis]) * self.strides[axis] - self.pads[axis]
            reads = starts[:, None] + np.arange(self.kernel[axis]) * self.dilations[axis]
            per_axis.append(((reads >= -before) & (reads < extent + after)).sum(axis=1))
        return np.maximum(reduce(np.multiply.outer, per_axis), 1)

    def flops(self, ins: Sequence[TensorType], out: TensorType) -> int:
        """One per tap and output."""
        return self.window.size * out.size
