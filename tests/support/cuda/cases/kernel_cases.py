"""Elements, boxes and tables that tests of elementwise and moving CUDA kernels share."""

from __future__ import annotations

import itertools

import numpy as np

from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.sampling.interp import AxisTaps
from brickrt.ops.types import Boxes

SUM = apply("max", apply("add", arg(0, "float32"), arg(1, "float32")), const(0, "float32"))


def values(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    x = np.random.default_rng(0).uniform(-9, 9, shape)
    return (x > 0) if dtype == "bool" else x.astype(dtype)


def split(shape: tuple[int, ...], parts: int) -> Boxes:
    """A grid of uneven boxes that covers a tensor, in reverse order."""
    cuts = [sorted({0, e, *(e * k // parts for k in range(parts))}) for e in shape]
    ranges = [list(itertools.pairwise(c)) if len(c) > 1 else [(0, c[0])] for c in cuts]
    grid = list(itertools.product(*ranges))[::-1]
    lo, hi = ([[r[k] for r in box] for box in grid] for k in (0, 1))
    return Boxes(np.asarray(lo, np.int64).reshape(len(grid), -1), np.asarray(hi, np.int64).reshape(len(grid), -1))


def taps(outputs: int, count: int, extent: int) -> AxisTaps:
    rng = np.random.default_rng(outputs)
    indices = rng.integers(0, extent, (outputs, count)).tolist()
    weights = rng.uniform(-1, 1, (outputs, count)).tolist()
    return AxisTaps(tuple(map(tuple, indices)), tuple(map(tuple, weights)))
