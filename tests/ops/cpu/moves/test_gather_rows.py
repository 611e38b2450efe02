"""Kernels of rows at positions that are data."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.operators.gather_rows import GatherRows
from tests.support.cpu.harness import AVX2, HOST, check

ISAS = [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")]
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("dtype", "columns"), [("float32", 37), ("float32", 1), ("float16", 40), ("uint8", 130)])
@pytest.mark.parametrize(("shape", "positions"), [((2, 5), "int64"), ((13,), "int32"), ((1, 3, 4), "int64")])
def test_rows(shape, positions, dtype, columns, isa):
    """Rows end within vectors; bits are copied, whatever they mean."""
    table = (50 * RNG.standard_normal((9, columns))).astype(dtype)
    check(GatherRows(), [table, RNG.integers(0, 9, shape).astype(positions)], isa)


@pytest.mark.parametrize("isa", ISAS)
def test_constant_tables(isa):
    check(GatherRows(), [RNG.standard_normal((4, 33)), RNG.integers(0, 4, (7,))], isa, packed=[True, False])
