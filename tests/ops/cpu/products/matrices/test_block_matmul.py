"""Products with constants of few bits, against the definition."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.block_matmul import BlockMatMul
from brickrt.ops.types import TensorType
from tests.ops.cpu.products.matrices.test_matmul import check_product
from tests.support.cpu.harness import AVX2, HOST, ZEN4

F32 = np.dtype(np.float32)
SUM = apply("max", apply("add", arg(0, F32), arg(1, F32)), const(0, F32))
CASES = {  # rows, K, N, block, bits
    "one row of pairs": ((1,), 64, 50, 32, 4),
    "one row of bytes": ((1,), 6, 135, 4, 8),
    "a tile of rows": ((4,), 48, 37, 16, 4),
    "many rows": ((29,), 40, 35, 16, 4),
    "many rows of bytes": ((2, 29), 21, 19, 21, 8),
    "batches": ((2, 3, 1), 32, 16, 2, 4),
    "one column": ((3,), 10, 1, 3, 8),
}


def operands(rows: tuple[int, ...], depth: int, columns: int, block: int, bits: int) -> list[np.ndarray]:
    rng, blocks = np.random.default_rng(1), -(-depth // block)
    return [
        rng.standard_normal((*rows, depth), np.float32),
        rng.integers(0, 256, (depth * bits // 8, columns)).astype(np.uint8),
        rng.uniform(0.01, 0.1, (blocks, columns)).astype(np.float32),
        rng.integers(0, 2**bits, (blocks, columns)).astype(np.uint8),
    ]


@pytest.mark.parametrize("isa", [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")])
@pytest.mark.parametrize("name", CASES)
def test_products(name, isa):
    *_, block, bits = CASES[name]
    check_product(BlockMatMul(block=block, bits=bits), operands(*CASES[name]), isa)


@pytest.mark.parametrize("rows", [2, 31])
def test_bias_and_epilogue(rows):
    arrays = operands((rows,), 32, 37, 16, 4)
    rng = np.random.default_rng(2)
    arrays += [rng.standard_normal(37).astype(np.float32), rng.standard_normal((rows, 37)).astype(np.float32)]
    op = BlockMatMul(bias=True, epilogue=SUM, block=16, bits=4)
    check_product(op, arrays, ZEN4)


@pytest.mark.parametrize(
    ("op", "rows"), [(BlockMatMul(block=16, bits=4), 3), (BlockMatMul(block=3, bits=4), 4), (BlockMatMul(block=8), 4)]
)
def test_operands_that_do_not_fit_are_refused(op, rows):
    arrays = operands((rows,), 32, 8, 16, 4)
    kinds = [np.float32, np.uint8, np.float64 if rows == 3 else np.float32, np.uint8]
    with pytest.raises(ValueError, match="BlockMatMul"):
        op.infer([TensorType(array.shape, np.dtype(kind)) for array, kind in zip(arrays, kinds, strict=True)])
