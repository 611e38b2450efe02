"""The PTX that NVRTC makes of kernels, translated and run on the host, against their NumPy definitions."""

from __future__ import annotations

import numpy as np
import pytest
import test_map
from host_kernels import needs_compiler
from ptx.single import Single

from brickrt.graph.errors import BrickError
from brickrt.ops.expr import apply, arg
from brickrt.runtime.cuda import compile as compiling

pytestmark = needs_compiler


@pytest.fixture(autouse=True)
def _compiler():
    try:
        compiling._compiler()
    except BrickError as e:
        pytest.skip(str(e))


@pytest.fixture(params=["sm_80", "sm_90"])
def single(request, monkeypatch):
    """All kernels that the tests of families run are PTX, and were run."""
    one = Single(monkeypatch, request.param)
    yield one
    assert one.launches


def test_map_of_two_operands(single):
    test_map.check(
        apply("add", arg(0, "float32"), arg(1, "float32")), np.ones((2, 3), "float32"), np.ones(3, "float32")
    )
