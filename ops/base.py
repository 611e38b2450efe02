"""The protocol of operators: what each answers about itself, whatever device computes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from brickrt.ops.types import Boxes, TensorType


@dataclass(frozen=True)
class Slab:
    """Part of a tensor: `array` holds the elements from index `origin` of the tensor on."""

    array: np.ndarray
    origin: tuple[int, ...]


class Op:
    """Base of the brick operators: frozen dataclasses without state that describe one output of a node's inputs.

    Planning asks `infer`, `region` and `flops`; kernels of every device are compared with `evaluate`. In all of them
    `ins` are the types of all inputs, in the order of the node's inputs, and `out` is the type of the output.
    """

    name: ClassVar[str] = "Op"
    anywhere: ClassVar[tuple[int, ...]] = ()
    """Inputs that are read where other inputs tell: a box may read any part of them, and reads little."""

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """The type of the output. Raises ValueError, naming what does not fit, for inputs the operator cannot take.

        It is called once per node, before anything else: the other methods may rely on inputs it accepted.
        """
        raise NotImplementedError

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """The boxes of input `i` that are read to produce `boxes` of the output, one for one, clipped to the input.

        This is what cuts a network into bricks: the region of a brick says which part of each input it waits for, halo
        included. It is a bounding box, so it may hold elements that are not read, but never lacks one that is. Where a
        box of the output is empty, its region is too.
        """
        raise NotImplementedError

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """The NumPy definition: the elements of one box (`box[0]`) of the output.

        `slabs` are the inputs, of which each covers at least `region(i, box, …)`; `crop` cuts that region out.
        Floating-point arithmetic is done in float64 and rounded once, at the end; the result has the output's dtype and
        the box's shape.
        """
        raise NotImplementedError

    def flops(self, ins: Sequence[TensorType], out: TensorType) -> int:
        """Floating-point operations for the whole output: by default one per element.

        A fused multiply-add counts two.
        """
        return out.size


def evaluate_whole(op: Op, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Runs an operator's NumPy definition on whole tensors."""
    ins = [TensorType(a.shape, a.dtype) for a in arrays]
    out = op.infer(ins)
    slabs = [Slab(a, (0,) * a.ndim) for a in arrays]
    return op.evaluate(Boxes.whole(out.shape), slabs, ins, out)


def crop(slab: Slab, boxes: Boxes) -> np.ndarray:
    """The elements of `boxes[0]` out of a slab that covers it."""
    return slab.array[boxes.slices(0, slab.origin)]
