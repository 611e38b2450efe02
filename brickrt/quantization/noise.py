"""Signal and noise: how far values are from what they should be, in dB."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np


def decibels(signal: float, noise: float) -> float:
    """10 log10 of the ratio of two sums of squares; infinite where there is no noise, minus infinity where there is no
    signal or either is not finite."""
    if noise == 0:
        return math.inf
    ratio = signal / noise
    return 10 * math.log10(ratio) if 0 < ratio < math.inf else -math.inf


@dataclass
class OutputNoise:
    """What quantization does to an output, summed over samples: call `add` for each.

    `classes` and `equal` count rows of an output of one score per class, and those whose best class stays the same;
    they are 0 for other outputs.
    """

    name: str
    classes: int = 0
    equal: int = 0
    _signal: float = field(default=0.0, repr=False)
    _noise: float = field(default=0.0, repr=False)
    _count: int = field(default=0, repr=False)
    _low: float = field(default=math.inf, repr=False)
    _high: float = field(default=-math.inf, repr=False)

    def add(self, expected: np.ndarray, found: np.ndarray) -> None:
        """Takes in the output of the float model and that of the quantized one for the same inputs."""
        exact, apart = expected.astype(np.float64), found.astype(np.float64) - expected
        self._signal += float(np.square(exact).sum())
        self._noise += float(np.square(apart).sum())
        self._count += exact.size
        self._low = min(self._low, float(exact.min(initial=math.inf)))
        self._high = max(self._high, float(exact.max(initial=-math.inf)))
        if exact.ndim >= 2 and exact.shape[1] > 1 and exact.size == exact.shape[0] * exact.shape[1]:
            rows = exact.shape[:2]
            self.classes += rows[0]
            self.equal += int(np.equal(*(a.reshape(rows).argmax(1) for a in (expected, found))).sum())

    @property
    def sqnr_db(self) -> float:
        """The ratio of signal to quantization noise."""
        return decibels(self._signal, self._noise)

    @property
    def psnr_db(self) -> float:
        """The ratio of the squared range of the float output to the mean squared noise."""
        return decibels((self._high - self._low) ** 2 * self._count, self._noise)
