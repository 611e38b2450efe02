"""Separable weighted sums along axes: linear and cubic Resize."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from brickrt.ops.base import Op


@dataclass(frozen=True)
class AxisTaps:
    """Output index i of the axis is the sum over k of weights[i][k] * input[indices[i][k]]; indices are in range."""

    indices: tuple[tuple[int, ...], ...]
    weights: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Interp(Op):
    """One `AxisTaps` per axis, None where the axis is kept."""

    name: ClassVar[str] = "Interp"
    taps: tuple[AxisTaps | None, ...]
