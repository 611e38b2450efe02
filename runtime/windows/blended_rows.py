"""The rows of an output that windows to come still touch: weighted sums, and sums of weights."""

from __future__ import annotations

import math

import numpy as np

from brickrt.runtime.windows.window_layout import Extents, WindowLayout


class BlendedRows:
    """Rows of one output, as many as a window has, over its whole width; of one image of the batch."""

    def __init__(self, layout: WindowLayout, channels: int, dtype: np.dtype, weights: np.ndarray) -> None:
        """`layout` is that of the output, `weights` those of a window in it."""
        held = (layout.window[0], *layout.padded[1:])
        self.layout, self.weights, self.top = layout, weights.astype(dtype), 0
        self.sums, self.shares = np.zeros((channels, *held), dtype), np.zeros(held, dtype)

    @staticmethod
    def nbytes(layout: WindowLayout, channels: int, itemsize: int) -> int:
        """Bytes that such rows take, with the weights."""
        held, window = layout.window[0] * math.prod(layout.padded[1:]), math.prod(layout.window)
        return ((channels + 1) * held + 2 * window) * itemsize

    def restart(self, top: int) -> None:
        """Nothing is held, from the row `top` on."""
        self.top = top
        self.sums[:], self.shares[:] = 0, 0

    def advance(self, top: int) -> None:
        """Drops the rows before `top`, which are finished, and makes room for new ones."""
        shift = top - self.top
        self.top = top
        for rows in (self.sums, self.shares[None]):
            shift_rows(rows, shift)
            rows[:, rows.shape[1] - shift :] = 0

    def add(self, at: Extents, result: np.ndarray) -> None:
        """Adds the result [channels, …] of the window that begins at `at` along the axes behind rows; overwrites it."""
        inside = (slice(None), *(slice(a, a + n) for a, n in zip(at, self.layout.window[1:], strict=True)))
        result *= self.weights
        self.sums[(slice(None), *inside)] += result
        self.shares[inside] += self.weights

    def finished(self, row: int) -> tuple[int, np.ndarray]:
        """Where in the output the rows begin that a row of windows finishes, and these rows [1, channels, …], without
        the padding. They are no longer there afterwards."""
        begin, end = self.layout.finished(row)
        image, front = self.layout.image, self.layout.front
        begin, end = max(begin, front[0]), min(end, front[0] + image[0])
        inside = (slice(begin - self.top, max(begin, end) - self.top), *map(_kept, front[1:], image[1:]))
        sums = self.sums[(slice(None), *inside)]
        sums /= self.shares[inside]
        return begin - front[0], sums[None]


def shift_rows(rows: np.ndarray, shift: int) -> None:
    """Moves rows along axis 1 forward by `shift`, in pieces that do not overlap."""
    kept = rows.shape[1] - shift
    for done in range(0, kept, max(1, shift)) if shift else ():
        n = min(shift, kept - done)
        rows[:, done : done + n] = rows[:, done + shift : done + shift + n]


def _kept(front: int, extent: int) -> slice:
    return slice(front, front + extent)
