"""Constant weights as products of bytes take them: signed bytes, and what moves those of a channel into their range.

Unsigned weights less a zero point such as 120 lie between -120 and 135: with 8 taken off they are bytes, and 8 times
the sum of the inputs is added to the products.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brickrt.graph.builder import Builder
from brickrt.graph.builders.integers.quantized_tensors import HALF_BYTES, OFFSET, S8, U8


@dataclass(frozen=True, eq=False)
class ByteWeights:
    """(`values` + `shift`) · `scales`: signed bytes, and for each index of `axis`, the output channels, or for all a
    shift, mostly 0, and a scale."""

    values: np.ndarray
    shift: np.ndarray
    scales: np.ndarray
    axis: int

    def turned(self) -> ByteWeights:
        """The transposed matrix."""
        return ByteWeights(self.values.T, self.shift, self.scales, 1 - self.axis)

    @cached_property
    def others(self) -> tuple[int, ...]:
        """The axes that are summed."""
        return tuple(k for k in range(self.values.ndim) if k != self.axis)

    @cached_property
    def totals(self) -> np.ndarray:
        """The sum of each channel's weights, in int64."""
        return self.values.sum(self.others, dtype=np.int64) + self.shift * self._count

    @cached_property
    def largest(self) -> int:
        """The largest sum of magnitudes of a channel, counted by bytes and shifts."""
        sums = np.abs(self.values.astype(np.int64)).sum(self.others) + np.abs(self.shift) * self._count
        return int(sums.max())

    @property
    def _count(self) -> int:
        return self.values.size // self.values.shape[self.axis]


def as_weights(b: Builder, name: str, axis: int) -> ByteWeights | None:
    """What DequantizeLinear said of a constant of bytes, whose output channels lie along `axis`; None where it is no
    such constant, or has scales along another axis."""
    found = b.quantized.get(b.resolve(name))
    values = None if found is None else b.known(found.tensor)
    if found is None or values is None or not values.size:
        return None
    if values.dtype in HALF_BYTES and values.ndim > 2:  # matrices are multiplied as they are stored
        values = values.astype(S8)
    if values.dtype not in (U8, S8):
        return None
    if found.scale.size > 1 and found.axis % values.ndim != axis:
        return None
    shape = [-1 if k == axis else 1 for k in range(values.ndim)]
    zero = found.zero.astype(np.int16)
    centered = values - zero.reshape(shape if zero.size > 1 else [1] * values.ndim)
    others = tuple(k for k in range(values.ndim) if k != axis)
    above = np.maximum(centered.max(others).astype(np.int64) - (OFFSET - 1), 0)
    shift = above + np.minimum(centered.min(others).astype(np.int64) + OFFSET, 0)
    if not shift.any():
        return ByteWeights(centered.astype(S8), np.zeros(1, np.int64), found.scale, axis)
    return ByteWeights((centered - shift.astype(np.int16).reshape(shape)).astype(S8), shift, found.scale, axis)
