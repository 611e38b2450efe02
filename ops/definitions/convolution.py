"""Convolutions in NumPy: inputs are gathered as columns (im2col) and multiplied as matrices."""

from __future__ import annotations

import math

import numpy as np

from brickrt.ops.window import Window

# Elements of the column buffer of one matrix product (64 MiB of float64).
COLUMN_LIMIT = 1 << 23


def correlate(x: np.ndarray, w: np.ndarray, groups: int, window: Window, extents: tuple[int, ...]) -> np.ndarray:
    """Convolution of x [N, groups·c, padded spatial…], which starts at output 0, with w [groups·m, c, kernel…].

    Gives [N, groups·m, *extents]. Slices of the first spatial dimension are computed in turn, to keep the columns
    small.
    """
    n, m = x.shape[0], w.shape[0]
    matrices = w.reshape(groups, m // groups, -1)
    result = np.empty((n, m, *extents), x.dtype)
    row = n * x.shape[1] * window.size * math.prod(extents[1:])
    step = max(1, COLUMN_LIMIT // max(row, 1))
    for first in range(0, extents[0], step):
        part = (min(step, extents[0] - first), *extents[1:])
        start = first * window.strides[0]
        cols = _columns(x[:, :, start:], groups, window, part)
        result[:, :, first : first + part[0]] = np.matmul(matrices, cols).reshape(n, m, *part)
    return result


def _columns(x: np.ndarray, groups: int, window: Window, extents: tuple[int, ...]) -> np.ndarray:
    """[N, groups, c·taps, outputs]: the inputs of every output, one per column."""
    n, channels = x.shape[:2]
    cols = np.empty((n, channels, window.size, *extents), x.dtype)
    for t, view in enumerate(window.taps(x, extents)):
        cols[:, :, t] = view
    return cols.reshape(n, groups, channels // groups * window.size, math.prod(extents))


def scatter(x: np.ndarray, w: np.ndarray, groups: int, window: Window) -> np.ndarray:
    """Transposed convolution of x [N, groups·c, spatial…] with w [groups·c, m, kernel…].

    Gives [N, groups·m, …] from the first output index that input 0 reaches to the last one that the last input reaches.
    """
    n, channels = x.shape[:2]
    m, spatial = w.shape[1], x.shape[2:]
    size = tuple((e - 1) * s + span for e, s, span in zip(spatial, window.strides, window.spans, strict=True))
    result = np.zeros((n, groups * m, *size), x.dtype)
    points = x.reshape(n, groups, channels // groups, -1)
    matrices = w.reshape(groups, channels // groups, m, -1)
    for t, view in enumerate(window.taps(result, spatial)):
        matrix = np.ascontiguousarray(matrices[..., t].swapaxes(1, 2))
        view += np.matmul(matrix, points).reshape(n, groups * m, *spatial)
    return result
