"""How the groups of a convolution lie in blocks of output channels, and the cheapest way to bring lanes their inputs.

A lane is an output channel and reads the channels of its own group, one after the other: its *members*. Nothing is
multiplied with zeros, so that NaN and infinities stay in their groups.

    24 channels a group, blocks of 16     |0000000000000000|0000000011111111|1111111111111111|
    4 channels a group                    |0000111122223333|4444555566667777|…

*Broadcast*: a member of each group that the block holds is loaded into all lanes, and masks put them together; one
group needs none, two take an operation. *Shuffle*: the members of all groups come from one or two vectors, by one
operation; the lanes that it takes are constants of the code, which is written for each member and each block until the
groups begin with a block again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

FEWEST_SHUFFLED = 3  # groups of a block that a shuffle is cheaper for than masks
MOST_SHUFFLES = 16  # of one pixel, in all blocks that have code of their own


@dataclass(frozen=True)
class LaneGroups:
    """Groups of `group_in` input and `group_out` output channels; blocks of `lanes` of them begin anew at each of
    `parts` parts of `each` output channels."""

    lanes: int
    group_in: int
    group_out: int
    parts: int
    each: int

    @property
    def blocks(self) -> int:
        """Blocks of a part."""
        return -(-self.each // self.lanes)

    @cached_property
    def groups(self) -> np.ndarray:
        """The first and the last group of each block of the product [parts * blocks, 2]."""
        first = np.arange(self.blocks) * self.lanes
        ends = np.stack([first, np.minimum(first + self.lanes, self.each) - 1], axis=1)
        parts = np.arange(self.parts)[:, None, None] * self.each
        return (parts + ends).reshape(-1, 2) // self.group_out

    @cached_property
    def held(self) -> list[int]:
        """The different numbers of groups that blocks hold, ascending."""
        return sorted(set((self.groups[:, 1] - self.groups[:, 0] + 1).tolist()))

    @property
    def aligned(self) -> bool:
        """Whether whole groups fill every block alike."""
        return self.lanes % self.group_out == 0 and (self.parts == 1 or self.each % self.lanes == 0)

    @property
    def period(self) -> tuple[int, int]:
        """Blocks of output and of input channels after which groups begin with a block of both again."""
        groups = math.lcm(*(self.lanes // math.gcd(self.lanes, width) for width in (self.group_in, self.group_out)))
        return groups * self.group_out // self.lanes, groups * self.group_in // self.lanes

    def sources(self, phase: int, member: int) -> np.ndarray:
        """The input channel of each lane in block `phase` of a period, counted from the period's first [lanes]."""
        return (phase * self.lanes + np.arange(self.lanes)) // self.group_out * self.group_in + member

    @cached_property
    def shuffles(self) -> bool:
        """Whether the members of a block's groups are shuffled from one or two vectors, where the input has blocks."""
        outputs, _ = self.period
        even = self.parts == 1 or (self.each % self.lanes == 0 and self.blocks % outputs == 0)
        same = self.group_in == self.group_out == 1
        return (
            even
            and (same or (self.held[-1] >= FEWEST_SHUFFLED and outputs * self.group_in <= MOST_SHUFFLES))
            and all(
                np.ptp(self.sources(phase, member) // self.lanes) <= 1
                for phase in range(outputs)
                for member in range(self.group_in)
            )
        )
