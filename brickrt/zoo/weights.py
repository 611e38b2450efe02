"""Random parameters that keep activations near unit scale, drawn in call order from one seeded generator."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

Array = np.ndarray


class BatchNorm(NamedTuple):
    """Parameters of an inference-mode batch normalization, each float32 [channels]."""

    scale: Array
    bias: Array
    mean: Array
    variance: Array


def normal(rng: np.random.Generator, shape: tuple[int, ...], std: float, mean: float = 0.0) -> Array:
    """float32 normal deviates."""
    draw = rng.standard_normal(shape, dtype=np.float32)
    draw *= np.float32(std)
    if mean:
        draw += np.float32(mean)
    return draw


def filters(
    rng: np.random.Generator, shape: tuple[int, ...], fan_in: float, rectified: bool, axes: tuple[int, ...]
) -> Array:
    """Normal weights that turn an input of unit variance, before any rectifier, into an output of unit variance.

    Without a rectifier the variance is 1 / fan_in, after one it is 2 / fan_in (He et al. 2015). A rectified input
    also has a positive mean, which in a deep random network soon outweighs what depends on the input: so there the
    weights are centred over `axes`, and scaled up for what that takes away (Brock et al. 2021).
    """
    if not rectified:
        return normal(rng, shape, math.sqrt(1 / fan_in))
    if not axes:
        return normal(rng, shape, math.sqrt(2 / fan_in))
    taps = normal(rng, shape, math.sqrt(2 / (1 - 1 / math.pi) / fan_in))
    taps -= taps.mean(axis=axes, keepdims=True)
    return taps


def batch_norm(rng: np.random.Generator, channels: int, scale: float) -> BatchNorm:
    """Statistics as after training on unit-scale activations; `scale` is the mean of the learned scale."""
    return BatchNorm(
        scale=normal(rng, (channels,), 0.1 * scale, scale),
        bias=normal(rng, (channels,), 0.1 * scale),
        mean=normal(rng, (channels,), 0.1),
        variance=rng.uniform(0.8, 1.2, channels).astype(np.float32),
    )
