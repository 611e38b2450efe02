"""Transposed convolution: one product of matrices per combination of phases (igemm_transposed.cuh).

Along a dimension, outputs of the same phase, (output + pad) mod stride, sum the same taps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from brickrt.ops.cuda.kernel import computes
from brickrt.ops.cuda.printing.epilogue import HEADERS
from brickrt.ops.cuda.printing.traits import choose_text
from brickrt.ops.cuda.products.conv import ProductConv
from brickrt.ops.operators.conv import ConvTranspose


@computes(ConvTranspose)
@dataclass(frozen=True)
class TransposedConv(ProductConv):
    """The kernel of transposed convolutions."""

    headers: ClassVar[tuple[str, ...]] = ("igemm_transposed.cuh", *HEADERS)
    name: ClassVar[str] = "conv_transpose"

    @property
    def shared_factors(self) -> list[int]:
        """Per dimension, the greatest common divisor of stride and dilation."""
        return [math.gcd(s, d) for s, d in zip(self.op.strides, self.op.dilations)]

    @property
    def steps(self) -> list[int]:
        """Per dimension, the distance from one tap to the next of the same phase."""
        return [s // g for s, g in zip(self.op.strides, self.shared_factors)]

    @property
    def backs(self) -> list[int]:
        """Per dimension, how many inputs the next tap of the same phase reads before the input of this one."""
        return [d // g for d, g in zip(self.op.dilations, self.shared_factors)]

    @property
    def taps(self) -> int:
        """The most taps that an output sums: those of the phase that has most."""
        return math.prod(-(-k // step) for k, step in zip(self.op.kernel, self.steps))

    @property
    def products(self) -> int:
        """One per group and combination of phases."""
        return super().products * math.prod(self.op.strides)

    @property
    def all_columns(self) -> int:
        """Columns of all products of the whole output, of all combinations of phases."""
        return super().all_columns * math.prod(self.op.strides)

    @property
    def padded_channels(self) -> int:
        """Channels to a tap in whole pieces of the packed depth, since each phase begins with a piece."""
        return -(-self.channels // self.core.together) * self.core.together

    def pixels(self, extents: Sequence[int]) -> Sequence[int]:
        """The outputs of one phase."""
        return [-(-e // s) for e, s in zip(extents, self.op.strides)]

    def pack_weights(self, w: np.ndarray) -> np.ndarray:
        """[C, M/g, k…] → [g, taps · channels / together, columns, together], the taps of a phase together."""
        phases = [[range(t, k, step) for t in range(step)] for k, step in zip(self.op.kernel, self.steps)]
        order = [
            np.ravel_multi_index(tap, self.op.kernel)
            for firsts in itertools.product(*phases)
            for tap in itertools.product(*firsts)
        ]
        taps = w.reshape(self.op.groups, self.channels, self.columns, -1)[..., order]
        return self.pack_taps(taps.transpose(0, 3, 1, 2))

    def settings(self) -> str:
        """Those of convolutions, and what igemm_transposed.cuh takes to find the taps of a phase."""
        inverses = [pow(back, -1, step) if step > 1 else 0 for back, step in zip(self.backs, self.steps)]
        tables = {"step": self.steps, "back": self.backs, "inverse": inverses}
        return super().settings() + "".join(choose_text("int", name, values) for name, values in tables.items())
