"""Epilogues: the elementwise expression that convolutions and matrix products apply to what they sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from brickrt.ops.base import Slab, crop
from brickrt.ops.definitions.expressions import evaluate_expr, round_to
from brickrt.ops.expr import Apply, Arg, Expr, walk
from brickrt.ops.regions import operand_region
from brickrt.ops.types import Boxes, Shape, TensorType


def count_applies(expr: Expr | None) -> int:
    """Operations per element; 0 without an expression."""
    return 0 if expr is None else sum(isinstance(e, Apply) for e in walk(expr))


def check_args(name: str, expr: Expr, dtypes: Sequence[np.dtype]) -> None:
    """Raises ValueError where an operand of the expression is missing or of another type."""
    for e in walk(expr):
        if not isinstance(e, Arg):
            continue
        if not 0 <= e.index < len(dtypes):
            raise ValueError(f"{name}: the expression uses operand {e.index}, but there are {len(dtypes)}")
        if e.dtype != dtypes[e.index]:
            raise ValueError(
                f"{name}: operand {e.index} is {dtypes[e.index].name}, the expression takes {e.dtype.name}"
            )


def check_operands(name: str, operands: Sequence[TensorType], shape: Shape) -> None:
    """Raises ValueError where an operand does not broadcast to `shape` by NumPy's rules."""
    for t in operands:
        tail = shape[len(shape) - t.rank :] if t.rank <= len(shape) else None
        if tail is None or any(a not in (1, b) for a, b in zip(t.shape, tail, strict=True)):
            raise ValueError(f"{name}: operand {t} does not broadcast to {list(shape)}")


def epilogue_type(
    name: str, epilogue: Expr | None, extras: Sequence[TensorType], dtype: np.dtype, shape: Shape, parts: int = 1
) -> TensorType:
    """The type of the output of an operator whose product has `dtype` and `shape`, in each of its `parts`.

    Raises ValueError where the extra operands do not fit the epilogue.
    """
    check_operands(name, extras, shape)
    if epilogue is None:
        if extras:
            raise ValueError(f"{name}: {len(extras)} inputs too many (there is no epilogue)")
        return TensorType(shape, dtype)
    check_args(name, epilogue, [*[dtype] * parts, *(t.dtype for t in extras)])
    return TensorType(shape, epilogue.dtype)


def finish(
    parts: Sequence[np.ndarray],
    epilogue: Expr | None,
    box: Boxes,
    slabs: Sequence[Slab],
    ins: Sequence[TensorType],
    dtype: np.dtype,
) -> np.ndarray:
    """Applies the epilogue to the parts of the product on `box`; `slabs` and `ins` are those of the extra operands."""
    product = parts[0]
    if epilogue is not None:
        extras = [crop(s, operand_region(box, t.shape)) for s, t in zip(slabs, ins, strict=True)]
        product = np.broadcast_to(evaluate_expr(epilogue, [*parts, *extras]), product.shape)
    return round_to(product, dtype)
