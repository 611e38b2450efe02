"""The PTX that NVRTC makes of chains, run on the host: no access astray, the same results as the definitions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from brickrt.graph.errors import BrickError
from brickrt.runtime.cuda.kernels import compile as compiling
from tests.ops.cuda.chains.test_pixel_chain import check
from tests.support.cuda.cases.chain_cases import first_half, second_half
from tests.support.cuda.host_kernels import needs_compiler
from tests.support.ptx.single import Single

pytestmark = needs_compiler


@pytest.mark.parametrize(
    "half, dtype, channels, arch",
    [
        (second_half, np.float16, 32, "sm_80"),
        (second_half, np.float32, 24, "sm_90"),
        (first_half, ml_dtypes.bfloat16, 20, "sm_90"),
    ],
)
def test_halves_of_blocks(monkeypatch, half, dtype, channels, arch):
    try:
        compiling._compiler()
    except BrickError as e:
        pytest.skip(str(e))
    one = Single(monkeypatch, arch)
    check(half(dtype, (1, 3, 11), channels))
    assert one.launches
