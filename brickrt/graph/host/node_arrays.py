"""The arrays that a node on the host is given: their memory, their shapes, and the integers in them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Arrays = Sequence[np.ndarray | None]

OBJECT_BYTES = 160
"""What an array takes beside its elements."""
PLACE = FLOAT = 8  # bytes of a position, and of the widest float
TEXT_BYTES = 80
"""A short text as a Python object, and its place in an array."""


def memory_of(x: np.ndarray) -> int:
    """Bytes of an array, and of its texts."""
    if x.dtype.kind != "O":
        return x.nbytes
    return x.size * TEXT_BYTES + sum(len(text) for text in x.flat if isinstance(text, str | bytes))


def input_at(arrays: Arrays, k: int) -> np.ndarray | None:
    """Input k; None where the node has none there."""
    return arrays[k] if k < len(arrays) else None


def shape_of(arrays: Arrays, k: int = 0) -> tuple[int, ...]:
    """The shape of input k; () where it is left out."""
    x = arrays[k]
    return () if x is None else x.shape


def integers(array: np.ndarray | None) -> list[int]:
    """The elements of an array; none where it is left out."""
    return [] if array is None else [int(v) for v in array.reshape(-1)]


def size_of(shape: Sequence[float]) -> int:
    """Elements of a tensor of this shape."""
    return int(math.prod(max(0, v) for v in shape))
