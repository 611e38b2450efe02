"""The last block of output channels of a convolution where few of its lanes are outputs: input channels share them.

With 2 outputs in 16 lanes, eight input channels are multiplied at once. Lane o·ways + s sums output o over the input
channels s, s + ways, s + 2·ways…; sums of adjacent lanes finish the outputs of `ways` pixels in one vector:

    pixel   x0 x1 x2 x3 x0 x1 x2 x3 …      `ways` = 4 adjacent channels of a blocked tensor, repeated
    weight  o0 o0 o0 o0 o1 o1 o1 o1 …

The outputs are stored blocked, or as rows of a plain tensor. Zen 4 does two operations
on half a vector at once: where half a vector holds the outputs, one channel is multiplied at a time, and nothing is
summed at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FEWEST_PIXELS = 8  # that pay for sweeping the last block apart from the others


def power_of_two(n: int) -> int:
    """The smallest power of two that is no less than `n` > 0."""
    return 1 << (n - 1).bit_length()


@dataclass(frozen=True)
class FewOutputs:
    """`ways` input channels share a vector of `lanes`."""

    ways: int
    lanes: int

    @property
    def outputs(self) -> int:
        """Output channels in a vector."""
        return self.lanes // self.ways

    def pack(self, rows: np.ndarray, unit: int) -> list[np.ndarray]:
        """Weights [M, C, taps] of the last block → for each channel unit [taps, channels / ways, outputs, ways]."""
        m, c, taps = rows.shape
        parts = []
        for start in range(0, c, unit):
            part = rows[:, start : start + unit]
            steps = -(-part.shape[1] // self.ways)
            padded = np.zeros((self.outputs, steps * self.ways, taps), rows.dtype)
            padded[:m, : part.shape[1]] = part
            parts.append(padded.reshape(-1, steps, self.ways, taps).transpose(3, 1, 0, 2))
        return parts
