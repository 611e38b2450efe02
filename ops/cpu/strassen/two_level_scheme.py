"""Matrix products with 49 of 64 multiplications: two levels of Strassen's scheme, one inside the other.

Rows of a box, columns and K are cut in four. All 49 first factors of a box's rows are computed in the worker's scratch,
the second ones are packed with the constant `b`; columns are grouped in fours of register tiles. Per product of the
first level (a round, see two_level_body.py) a register tile runs through the seven products of the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from brickrt.ops.cpu.strassen.scheme import StrassenScheme
from brickrt.ops.cpu.strassen.second_factors import second_factors
from brickrt.ops.cpu.strassen.sizes import BLOCKS, PRODUCTS

STATES = 3


@dataclass(frozen=True)
class TwoLevelStrassenScheme(StrassenScheme):
    """`shape_class` as in `StrassenScheme`, with groups of four tiles."""

    levels: ClassVar[int] = 2
    effort = 4

    # ---- workspace, in elements: first factors, a tile of zeros, two spilled tiles, states, sums of the chunks so far

    @property
    def zeros_at(self) -> int:
        """A register tile of zeros."""
        return PRODUCTS**self.levels * self.factor_elements

    @property
    def spills_at(self) -> int:
        """Two register tiles."""
        return self.zeros_at + self.tile_elements

    @property
    def states_at(self) -> int:
        """What rounds leave for later ones."""
        return self.spills_at + 2 * self.tile_elements

    @property
    def state_elements(self) -> int:
        """Room for the four tiles that one product of the first level gives, of all rows of a part."""
        return 4 * self.part_rows * BLOCKS * self.lanes

    @property
    def partial_at(self) -> int:
        """Sums of the chunks so far."""
        return self.states_at + STATES * self.state_elements

    @property
    def partial_elements(self) -> int:
        """Room for the sixteen outputs of a group of tiles of columns."""
        return 4 * self.state_elements

    def packed_factors(self, b: np.ndarray) -> np.ndarray:
        """[chunk, group of tiles, product of the first level, of the second, K/chunks/4, BLOCKS*lanes]"""
        factors = second_factors(self.grouped(b), self.levels)
        return factors.transpose(2, 4, 1, 0, 3, 5)
