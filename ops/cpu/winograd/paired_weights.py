"""The transformed weights of a Winograd convolution with paired channels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from brickrt.ops.cpu.winograd.axes import Axes
from brickrt.ops.cpu.winograd.transforms import input_matrix


def plane_sizes(axes: Axes) -> np.ndarray:
    """Powers of two near to what transformed inputs are in each plane, [n²], if inputs are independent of each other
    and the sum of their squares over a tile is 1, times 2: largest weights are about twice as large as others."""
    rows = np.kron(*(np.linalg.norm(input_matrix(axis), axis=1) for axis in (axes.down, axes.across)))
    return np.exp2(np.round(np.log2(2 * rows / np.sqrt(axes.planes)))).astype(np.float32)


def paired_weights(u: np.ndarray, paired: int, sizes: np.ndarray) -> Sequence[np.ndarray]:
    """[n², block, swept tap, 1, C, lanes] with each plane's output channels times powers of two that bring their
    largest magnitudes to the plane's size or up to twice that; what takes them back, [n², block, lanes]; and the sums
    of the products of their pairs, of even lanes less those of odd ones, [n², block, swept tap, lanes].

    Of every three blocks of the first `paired` channels the second and the third are paired; what is multiplied in one
    step lies together.
    """
    lanes = u.shape[-1]
    largest = np.abs(u).max(axis=(2, 3, 4))
    usable = np.isfinite(largest) & (largest > 0)
    back = np.ldexp(1 / sizes[:, None, None], np.frexp(np.where(usable, largest, 1))[1] - 1).astype(np.float32)
    scaled = u / back[:, :, None, None, None]
    back[largest == 0] = 0  # their sums are not quite 0
    apart = scaled[:, :, :, 0, :paired].reshape(*u.shape[:3], -1, 3, lanes, lanes)
    signs = 1 - np.arange(lanes)[:, None] % 2 * 2
    pairs = (apart[..., 1, :, :].astype(np.float64) * apart[..., 2, :, :] * signs).sum(axis=(3, 4))
    scaled[:, :, :, 0, :paired] = apart.swapaxes(-3, -2).reshape(*u.shape[:3], paired, lanes)
    return [scaled, back, np.where(np.isfinite(pairs), pairs, 0).astype(np.float32)]
