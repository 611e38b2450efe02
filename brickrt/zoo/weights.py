"""Random parameters that keep activations near unit scale, drawn in call order from one seeded generator."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

Array = np.ndarray

CENTRED = 0.5  # share of a filter's mean that is taken away


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
    also has a positive mean, which in a deep random network soon outweighs what depends on the input: so there half
    the mean of the weights over `axes` is taken away, and they are scaled up for what that costs (after Brock et al.
    2021). Without all of it each layer would grow small differences by a fifth: over 60 layers, rounding to 1e-3.
    """
    if not rectified:
        return normal(rng, shape, math.sqrt(1 / fan_in))
    if not axes:
        return normal(rng, shape, math.sqrt(2 / fan_in))
    lost = (1 - (1 - CENTRED) ** 2) / math.pi
    taps = normal(rng, shape, math.sqrt(2 / (1 - lost) / fan_in))
    taps -= np.float32(CENTRED) * taps.mean(axis=axes, keepdims=True)
    return taps


def batch_norm(rng: np.random.Generator, channels: int, scale: float) -> BatchNorm:
    """Statistics as after training on unit-scale activations; `scale` is the mean of the learned scale."""
    return BatchNorm(
        scale=normal(rng, (channels,), 0.1 * scale, scale),
        bias=normal(rng, (channels,), 0.1 * scale),
        mean=normal(rng, (channels,), 0.1),
        variance=rng.uniform(0.8, 1.2, channels).astype(np.float32),
    )
