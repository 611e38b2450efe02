"""The weights of a window's results."""

from __future__ import annotations

import numpy as np

from brickrt.runtime.windows.window_layout import Extents
from brickrt.runtime.windows.window_options import Blend

SIGMA = 0.125  # of the Gaussian, as a share of the window
LEAST_WEIGHT = 1e-3  # so that sums of weights can be divided by


def blend_weights(window: Extents, out: Extents, blend: Blend) -> np.ndarray:
    """float32 weights of a window of the output, with extents `out`: those of the input's window, of which an output of
    another size takes the nearest."""
    if blend == "constant":
        return np.ones(out, np.float32)
    weights = np.ones((), np.float32)
    for extent in window:
        at = np.arange(extent, dtype=np.float32) - np.float32((extent - 1) / 2)
        along = np.exp(-(at**2) / np.float32(2 * (SIGMA * extent) ** 2))
        weights = weights[..., None] * along
    weights = np.maximum(weights, np.float32(max(LEAST_WEIGHT, float(weights.min()))))
    nearest = [np.arange(n) * extent // n for n, extent in zip(out, window, strict=True)]
    return weights if out == window else np.ascontiguousarray(weights[np.ix_(*nearest)])
