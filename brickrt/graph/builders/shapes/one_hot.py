"""Tensors with an element of its own in each row, at positions that are computed: as codebooks of VQ autoencoders are
read where they are multiplied by rows of zeros with a one among them."""

from __future__ import annotations

import numpy as np

from brickrt.graph.builder import Builder
from brickrt.graph.builders.common import elementwise, view
from brickrt.graph.builders.scalar import equal, where
from brickrt.graph.builders.shapes.indexing import is_cast, noted, positions_below
from brickrt.ops.operators.gather_rows import GatherRows

NUMBERS = (np.int32, np.int64, np.float16, np.float32, np.float64)
"""Types that hold zeros and ones as they are."""


def with_one_replaced(b: Builder, names: tuple[str, str, str], axis: int) -> str | None:
    """A tensor in which one element along an axis is replaced in each line by an update. `names` are those of the
    tensor, the positions, and the updates, both of extent 1 along the axis; None where positions are others, or are
    not known to be inside."""
    x, positions, updates = names
    shape, below = b.type(x).shape, positions_below(b, positions)
    lines = (*shape[:axis], 1, *shape[axis + 1 :])
    if below is None or below > shape[axis] or b.type(positions).shape != lines or b.type(updates).shape != lines:
        return None
    along = (-1, *(1 for _ in shape[axis + 1 :]))
    counter = b.constant(np.arange(shape[axis], dtype=b.type(positions).dtype).reshape(along))
    old, new = (_uniform(b, name) for name in (x, updates))
    found = elementwise(b, lambda k, at, new, old: where(equal(k, at), new, old), counter, positions, new, old)
    last = axis == len(shape) - 1
    if last and _is_all(b, x, 0) and _is_all(b, updates, 1) and b.type(found).shape == shape:
        b.one_hot[b.resolve(found)] = positions
    return found


def rows_by_one_hot(b: Builder, x: str, table: str) -> str | None:
    """The product of a tensor of zeros with a one in each row and a constant matrix: rows of this. None for others, and
    where an element of the matrix is not finite, which zeros make NaN of."""
    if not b.one_hot or not b.cpu_operators:
        return None
    positions = noted(b, x, b.one_hot, lambda node: is_cast(node, NUMBERS))
    if positions is None or b.type(positions).rank < 2:
        return None
    known = b.known(table)
    if known is None or known.ndim != 2 or not np.isfinite(known).all():
        return None
    return b.emit(GatherRows(), table, view(b, positions, b.type(positions).shape[:-1]))


def _uniform(b: Builder, name: str) -> str:
    """A tensor, or one element of it where it is a constant of equal ones."""
    known = b.known(name)
    if known is None or not known.size or (known != known.flat[0]).any():
        return name
    return b.constant(known.reshape(-1)[:1].reshape((1,) * known.ndim))


def _is_all(b: Builder, name: str, value: float) -> bool:
    known = b.known(name)
    return known is not None and bool((known == value).all())
