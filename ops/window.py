"""Sliding windows: the index arithmetic that convolution and pooling share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brickrt.ops.base import Slab

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """Per spatial dimension, tap t of output o reads input o · stride - pad + t · dilation."""

    kernel: Ints
    strides: Ints
    dilations: Ints
    pads: Ints

    @property
    def size(self) -> int:
        """Number of taps."""
        return math.prod(self.kernel)

    @property
    def spans(self) -> Ints:
        """Inputs from the first to the last tap, both included."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def reach(self, lo: np.ndarray, hi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The input ranges that output ranges [n, spatial] read, padding included (not clipped)."""
        strides, pads, beyond = self._numbers
        return lo * strides - pads, hi * strides + beyond

    @cached_property
    def _numbers(self) -> np.ndarray:
        """Strides, pads, and what is beyond an end that is multiplied by the stride."""
        sides = zip(self.spans, self.strides, self.pads, strict=True)
        return np.array([self.strides, self.pads, [span - stride - pad for span, stride, pad in sides]], np.int64)

    def taps(self, array: np.ndarray, extents: Sequence[int]) -> Iterator[np.ndarray]:
        """Per tap, row-major over the kernel, its view [N, C, *extents] of an array that starts where output 0 does."""
        for tap in np.ndindex(*self.kernel):
            starts = [t * d for t, d in zip(tap, self.dilations, strict=True)]
            ranges = zip(starts, extents, self.strides, strict=True)
            yield array[(slice(None), slice(None), *(slice(a, a + (e - 1) * s + 1, s) for a, e, s in ranges))]


def check_window(name: str, rank: int, **settings: Ints) -> None:
    """Raises ValueError where a per-dimension setting does not have `rank` entries."""
    for what, values in settings.items():
        if len(values) != rank:
            raise ValueError(f"{name}: {what} has {len(values)} entries, the input has {rank} spatial dimensions")


def read_padded(slab: Slab, lo: np.ndarray, hi: np.ndarray, fill: float | int, dtype: np.dtype) -> np.ndarray:
    """The elements [lo, hi) of a tensor as a new array of `dtype`, with `fill` for what the slab does not hold."""
    result = np.full(np.maximum(hi - lo, 0), fill, dtype)
    origin = np.asarray(slab.origin, np.int64)
    first = np.maximum(lo, origin)
    last = np.maximum(np.minimum(hi, origin + np.asarray(slab.array.shape)), first)
    here = tuple(slice(a, b) for a, b in zip(first - lo, last - lo, strict=True))
    there = tuple(slice(a, b) for a, b in zip(first - origin, last - origin, strict=True))
    if (last > first).all():
        result[here] = slab.array[there]
    return result
