"""Kernels of convolutions and matrix products by weights that are constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.operators.product import Product


@dataclass(frozen=True)
class WeightedKernel(Kernel):
    """Input 1 are the weights, [M, C, taps…] or [K, N], and input 2 the bias, if there is one. Packed, they follow from
    channels and columns, which are sizes where the code does not know those of input and output."""

    op: Product

    def open_dims(self, i: int | None) -> Sequence[int]:
        """See `Kernel`; of weights and bias, channels and columns alone."""
        if i is None or i == 0 or i >= self.op.main:
            return super().open_dims(i)
        return () if self.knows_channels else (0, 1) if i == 1 else (0,)

    def opens_packed(self, i: int) -> bool:
        """See `Kernel`."""
        return True
