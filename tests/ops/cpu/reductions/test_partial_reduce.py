"""Kernels of partial reductions."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.cpu.reductions import partial_reduce as segment_kernels  # noqa: F401  (registers the kernels)
from brickrt.ops.operators.partial_reduce import PartialReduce
from tests.support.cpu.harness import AVX2, HOST, check

ISAS = [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("combine", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize(
    ("shape", "length"), [((2, 37, 3, 19), 8), ((1, 16, 2, 5), 64), ((1, 20, 33), 11), ((1, 3, 2, 2, 17), 1)]
)
def test_segments(shape, length, combine, isa):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    check(PartialReduce(combine, length), [x], isa, blocks=[isa.lanes], out_block=isa.lanes)
