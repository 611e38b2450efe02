"""Reductions over some axes, with an expression before and one after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from brickrt.ops.base import Op, Slab, crop
from brickrt.ops.definitions.expressions import compute_type, evaluate_expr, round_to
from brickrt.ops.epilogue import check_args, check_operands, count_applies
from brickrt.ops.expr import Apply, Expr, used_operands
from brickrt.ops.regions import box_shape, operand_region, settle
from brickrt.ops.types import Boxes, TensorType, is_floating

COMBINE: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


@dataclass(frozen=True)
class Reduce(Op):
    """post(combine over `axes` of pre(inputs…)).

    Input 0 has the full shape; the other inputs of `pre` broadcast to it. `axes` are non-negative, ascending, and not
    empty. In `post`, `Arg(0)` is the combined value (post has no other operands). Without `pre` there is one input.
    """

    name: ClassVar[str] = "Reduce"
    combine: Literal["sum", "prod", "max", "min"]
    axes: tuple[int, ...]
    keepdims: bool
    pre: Expr | None = None
    post: Expr | None = None

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """Checks axes and expressions; the type is that of `post`, `pre` or the input."""
        x, *others = ins
        if not self.axes or list(self.axes) != sorted(set(self.axes)) or self.axes[0] < 0 or self.axes[-1] >= x.rank:
            raise ValueError(f"Reduce: axes {list(self.axes)} of input {x}; give distinct ascending axes of it")
        if self.pre is None and others:
            raise ValueError(f"Reduce: {len(ins)} inputs, but no expression that combines them")
        check_operands(self.name, others, x.shape)
        if self.pre is not None:
            check_args(self.name, self.pre, [t.dtype for t in ins])
        dtype = self._combined_type(ins)
        if self.post is not None:
            check_args(self.name, self.post, [dtype])
            dtype = self.post.dtype
        kept = [1 if axis in self.axes else e for axis, e in enumerate(x.shape)]
        shape = [e for axis, e in enumerate(kept) if self.keepdims or axis not in self.axes]
        return TensorType(tuple(shape), dtype)

    def difference(self, ins: Sequence[TensorType]) -> tuple[Expr, Expr] | None:
        """The x, an expression of input 0, and the m, the same along the axes, of a sum of (x - m)²; else None."""
        pre = self.pre
        if self.combine != "sum" or not isinstance(pre, Apply) or pre.fn != "mul" or pre.args[0] != pre.args[1]:
            return None
        inner = pre.args[0]
        if not isinstance(inner, Apply) or inner.fn != "sub" or used_operands(inner.args[0]) != [0]:
            return None
        shapes = ((1,) * (ins[0].rank - ins[k].rank) + ins[k].shape for k in used_operands(inner.args[1]))
        fixed = all(shape[axis] == 1 for shape in shapes for axis in self.axes)
        return (inner.args[0], inner.args[1]) if fixed else None

    def _combined_type(self, ins: Sequence[TensorType]) -> np.dtype:
        return ins[0].dtype if self.pre is None else self.pre.dtype

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """Boxes that are whole along the reduced axes."""
        full = self._full(boxes, ins)
        return settle(boxes, full.lo, full.hi, ins[0].shape) if i == 0 else operand_region(full, ins[i].shape)

    def _full(self, boxes: Boxes, ins: Sequence[TensorType]) -> Boxes:
        """The boxes of the full shape that are combined; empty where the box of the output is."""
        full = Boxes.whole(ins[0].shape, len(boxes))
        kept = [axis for axis in range(ins[0].rank) if axis not in self.axes]
        source = kept if self.keepdims else list(range(len(kept)))
        full.lo[:, kept], full.hi[:, kept] = boxes.lo[:, source], boxes.hi[:, source]
        return settle(boxes, full.lo, full.hi, ins[0].shape)

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """`pre`, the combination and `post` in float64."""
        shape = box_shape(box)
        if 0 in shape:
            return np.empty(shape, out.dtype)
        dtype = self._combined_type(ins)
        operands = [crop(s, self.region(i, box, ins, out)) for i, s in enumerate(slabs)]
        values = operands[0].astype(compute_type(dtype)) if self.pre is None else evaluate_expr(self.pre, operands)
        values = np.broadcast_to(values, operands[0].shape)
        with np.errstate(all="ignore"):
            combined = COMBINE[self.combine].reduce(
                values, axis=self.axes, dtype=values.dtype, **self._start(values.dtype)
            )
        if self.post is not None:
            combined = evaluate_expr(self.post, [combined])
        return round_to(np.array(np.broadcast_to(np.reshape(combined, shape), shape)), out.dtype)

    def _start(self, dtype: np.dtype) -> dict[str, Any]:
        """The value that a maximum or minimum of no elements has."""
        if self.combine not in ("max", "min"):
            return {}
        sign = 1 if self.combine == "min" else -1
        if is_floating(dtype):
            return {"initial": sign * np.inf}
        if dtype.kind == "b":
            return {"initial": sign > 0}
        return {"initial": np.iinfo(dtype).max if sign > 0 else np.iinfo(dtype).min}

    def flops(self, ins: Sequence[TensorType], out: TensorType) -> int:
        """`pre` and the combination per input, `post` per output."""
        return ins[0].size * (1 + count_applies(self.pre)) + out.size * count_applies(self.post)


@dataclass(frozen=True)
class RunningSum(Op):
    """Sums along `axis`, which is not the last one, up to and including each element, or from it on, if `backward`."""

    name: ClassVar[str] = "RunningSum"
    axis: int
    backward: bool = False

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """Raises ValueError for other ranks, and where sums are not defined."""
        (x,) = ins
        if not 0 <= self.axis < x.rank - 1 or x.dtype.kind == "b":
            raise ValueError(f"RunningSum: axis {self.axis} of input {x}; give numbers, and an axis before the last")
        return x

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """The boxes, and all that is added before them."""
        lo, hi = boxes.lo.copy(order="K"), boxes.hi.copy(order="K")
        if self.backward:
            hi[:, self.axis] = out.shape[self.axis]
        else:
            lo[:, self.axis] = 0
        return settle(boxes, lo, hi, out.shape)

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """Sums of all that is read, cut to the box."""
        shape = box_shape(box)
        if 0 in shape:
            return np.empty(shape, out.dtype)
        x = np.moveaxis(crop(slabs[0], self.region(0, box, ins, out)), self.axis, 0)
        with np.errstate(all="ignore"):
            sums = np.cumsum(x[::-1] if self.backward else x, axis=0, dtype=compute_type(out.dtype))
        sums = sums[-shape[self.axis] :]
        return round_to(np.moveaxis(sums[::-1] if self.backward else sums, 0, self.axis), out.dtype)
