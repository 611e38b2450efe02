"""Matrix products whose second factor is a constant of few bits, dequantized while it is multiplied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Slab, crop
from brickrt.ops.epilogue import epilogue_type, finish
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.regions import box_shape
from brickrt.ops.types import Boxes, TensorType

F32, U8 = np.dtype(np.float32), np.dtype(np.uint8)


@dataclass(frozen=True)
class BlockMatMul(MatMul):
    """a [batch…, M, K] times (q - zero) · scale, float32.

    q is [K, N] in unsigned bytes; with `bits` 4 it is [K / 2, N], where byte k has element 2k in its lower half and
    2k + 1 in its upper one. scale (float32) and zero (unsigned bytes) are [⌈K / block⌉, N]: one for `block` elements of
    a column. Then bias and epilogue, as those of `MatMul`.
    """

    name: ClassVar[str] = "BlockMatMul"
    factors: ClassVar[int] = 4
    block: int = 1
    bits: int = 8

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """Rows of a, columns of q."""
        if len(ins) < self.main:
            raise ValueError(f"{self.name}: {len(ins)} inputs, expected at least {self.main}")
        a, q, scale, zero, *bias = ins[: self.main]
        if a.rank < 2 or q.rank != 2 or self.bits not in (4, 8) or (self.bits == 4 and self.block % 2):
            raise ValueError(f"{self.name}: {a} times {q} of {self.bits} bits in blocks of {self.block}")
        depth, columns = q.shape[0] * 8 // self.bits, q.shape[1]
        blocks = (-(-depth // self.block), columns)
        if a.shape[-1] != depth or scale != TensorType(blocks, F32) or zero != TensorType(blocks, U8):
            raise ValueError(f"{self.name}: {a} times {q} with scales {scale} and zero points {zero}")
        if (a.dtype, q.dtype) != (F32, U8) or (bias and bias[0] != TensorType((columns,), F32)):
            raise ValueError(f"{self.name}: operands of types {', '.join(map(str, ins[: self.main]))}")
        return epilogue_type(self.name, self.epilogue, ins[self.main :], F32, (*a.shape[:-1], columns))

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """Dequantized in float32 as ONNX says, then product, bias and epilogue in float64."""
        shape = box_shape(box)
        if 0 in shape:
            return np.empty(shape, out.dtype)
        a, q, scale, zero, *bias = (crop(slabs[i], self.region(i, box, ins, out)) for i in range(self.main))
        with np.errstate(all="ignore"):
            product = np.matmul(a.astype(np.float64), self.dequantized(q, scale, zero).astype(np.float64))
            if bias:
                product = product + bias[0]
        return finish([product], self.epilogue, box, slabs[self.main :], ins[self.main :], out.dtype)

    def dequantized(self, q: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
        """The second factor, float32 [K, columns]."""
        if self.bits == 4:
            q = np.stack([q & 15, q >> 4], 1).reshape(-1, q.shape[1])
        scale, zero = (np.repeat(each, self.block, 0)[: len(q)] for each in (scale, zero))
        return (q.astype(F32) - zero) * scale
