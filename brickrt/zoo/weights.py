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
    draw += np.float32(mean)
    return draw


def he_normal(rng: np.random.Generator, shape: tuple[int, ...], fan_in: float, gain: float) -> Array:
    """Weights of variance gain / fan_in (He et al. 2015): gain 2 follows a rectifier, 1 a linear layer."""
    w = normal(rng, shape, math.sqrt(gain / fan_in))
    if gain == 2.0 and math.prod(shape[1:]) >= 16:
        w -= w.reshape(shape[0], -1).mean(1).reshape((-1,) + (1,) * (len(shape) - 1))
        w *= np.float32((1 - 1/math.pi)**-0.5)
    return w


def batch_norm(rng: np.random.Generator, channels: int, scale: float) -> BatchNorm:
    """Statistics as after training on unit-scale activations; `scale` is the mean of the learned scale."""
    return BatchNorm(
        scale=normal(rng, (channels,), 0.1 * scale, scale),
        bias=normal(rng, (channels,), 0.1 * scale),
        mean=normal(rng, (channels,), 0.1),
        variance=rng.uniform(0.8, 1.2, channels).astype(np.float32),
    )
