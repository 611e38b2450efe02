"""What an operator must answer, whatever the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from brickrt.ops.types import Boxes, TensorType


@dataclass(frozen=True)
class Slab:
    """Part of a tensor: `array` holds the elements from index `origin` on."""

    array: np.ndarray
    origin: tuple[int, ...]


class Op:
    """Base of the brick operators: frozen dataclasses with one output and no state.

    `ins` are the types of all inputs, in the order of the node's inputs, `out` the type of the output.
    """

    name: ClassVar[str] = "Op"

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """Type of the output. Raises ValueError, naming what does not fit, for inputs the operator cannot take."""
        raise NotImplementedError

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """The boxes of input `i` that are read to produce `boxes` of the output, clipped to that input."""
        raise NotImplementedError

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """The NumPy definition: the output on one box, from at least the regions that box needs.

        Floating-point arithmetic is done in float64; the result has the output's dtype and the box's shape.
        """
        raise NotImplementedError

    def flops(self, ins: Sequence[TensorType], out: TensorType) -> int:
        """Floating-point operations for the whole output (a fused multiply-add counts two)."""
        return out.size


def evaluate_whole(op: Op, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Runs an operator's NumPy definition on whole tensors."""
    ins = [TensorType(a.shape, a.dtype) for a in arrays]
    out = op.infer(ins)
    slabs = [Slab(a, (0,) * a.ndim) for a in arrays]
    return op.evaluate(Boxes.whole(out.shape), slabs, ins, out)


def crop(slab: Slab, boxes: Boxes) -> np.ndarray:
    """The elements of box 0 of `boxes` out of a slab that covers it."""
    return slab.array[boxes.slices(0, slab.origin)]
