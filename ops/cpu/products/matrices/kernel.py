"""Matrix products: the kernel, and its packed constants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.products.matrices.body import MatMulBody
from brickrt.ops.cpu.products.matrices.scheme import MatMulScheme
from brickrt.ops.cpu.products.words.paired_bytes import weight_pairs
from brickrt.ops.cpu.products.words.words import (
    pack_words,
)
from brickrt.ops.operators.matmul import MatMul


class MatMulKernel(MatMulScheme):
    """A matrix product by register tiles."""

    def pack_parts(self, i: int, array: np.ndarray) -> Sequence[np.ndarray]:
        """See `pack`; behind bytes what the pairs of each column sum to, where they are paired."""
        if i != 1 or not self.pairs_bytes:
            return super().pack_parts(i, array)
        sums = weight_pairs(array.reshape(array.shape[-2:]), 0)
        padded = np.pad(sums, (0, self.padded_columns - self.columns))
        return [self.pack(i, array), padded.view(array.dtype)]

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        """Factors [batch…, K, N] → [batch…, tile, K, OB*lanes], zero beyond N; the bias up to whole tiles."""
        if i == 1 and self.in_words:
            return self.in_tiles(pack_words(array, array.ndim - 2)).view(array.dtype)
        if 0 < i < self.op.factors:
            return self.in_tiles(array)
        if i == self.op.factors and self.op.bias:
            return np.pad(array, (0, self.padded_columns - self.columns))
        return super().pack(i, array)

    def in_tiles(self, array: np.ndarray) -> np.ndarray:
        """A matrix per batch with the columns of each register tile together."""
        missing = self.padded_columns - self.columns
        whole = np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)]) if missing else array
        width = self.tile[0] * self.lanes
        split = whole.reshape(*array.shape[:-1], whole.shape[-1] // width, width)
        return np.ascontiguousarray(np.moveaxis(split, -2, -3))

    def emit(self, f: FunctionEmitter) -> None:
        """See `MatMulBody`."""
        MatMulBody(self, f).emit()


@kernel_for(MatMul)
def _choose(op: Op, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    return MatMulKernel
