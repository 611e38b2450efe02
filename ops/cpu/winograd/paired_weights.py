"""The transformed weights of a Winograd convolution with paired channels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def paired_weights(u: np.ndarray, paired: int) -> Sequence[np.ndarray]:
    """[n², block, swept tap, 1, C, lanes] with each plane's output channels times powers of two that bring their
    largest magnitudes to 1 or up to twice that; what takes them back, [n², block, lanes]; and the sums of the products
    of their pairs, [n², block, swept tap, lanes]. Of every three blocks of the first `paired` channels the second and
    the third are paired; what is multiplied in one step lies together.
    """
    lanes = u.shape[-1]
    largest = np.abs(u).max(axis=(2, 3, 4))
    usable = np.isfinite(largest) & (largest > 0)
    back = np.ldexp(np.float32(1), np.frexp(np.where(usable, largest, 1))[1] - 1).astype(np.float32)
    scaled = u / back[:, :, None, None, None]
    blocks = scaled[:, :, :, 0, :paired].astype(np.float64).reshape(*u.shape[:3], -1, 3, lanes, lanes)
    finite = np.where(np.isfinite(blocks), blocks, 0)
    pairs = (finite[..., 1, :, :] * finite[..., 2, :, :]).sum(axis=(3, 4))
    together = scaled[:, :, :, 0, :paired].reshape(*u.shape[:3], -1, 3, lanes, lanes).swapaxes(-3, -2)
    scaled[:, :, :, 0, :paired] = together.reshape(*u.shape[:3], paired, lanes)
    return [scaled, back, pairs.astype(np.float32)]
