"""Interp kernels: linear, cubic and wide taps along any axes."""

from __future__ import annotations

import numpy as np
import pytest

import brickrt.ops.cpu.elementwise.interp  # noqa: F401 (registers the kernels)
from brickrt.ops.cpu.kernel import choose_kernel
from brickrt.ops.cpu.operand import dense
from brickrt.ops.operators.sampling.interp import AxisTaps, Interp
from brickrt.ops.types import TensorType
from tests.support.cpu.few_boxes import check_few
from tests.support.cpu.harness import AVX2, HOST

ISAS = [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")]


def taps(extent: int, outputs: int, count: int) -> AxisTaps:
    rng = np.random.default_rng(outputs + count)
    indices = rng.integers(0, extent, (outputs, count))
    weights = rng.standard_normal((outputs, count)).astype(np.float32)
    return AxisTaps(tuple(map(tuple, indices.tolist())), tuple(map(tuple, weights.tolist())))


def sample(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return (np.random.default_rng(3).standard_normal(shape) * 9).astype(dtype)


SPACE = {
    "linear": (None, None, taps(5, 11, 2), taps(7, 19, 2)),
    "cubic": (None, None, taps(5, 3, 4), taps(7, 13, 4)),
    "wide": (None, None, taps(5, 4, 8), taps(7, 21, 7)),
    "rows": (None, None, taps(5, 9, 2), None),
    "none": (None, None, None, None),
    "batch": (taps(2, 3, 3), None, None, taps(7, 2, 2)),
}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", SPACE)
def test_plain(name, isa):
    check_few(Interp(SPACE[name]), [sample((2, 3, 5, 7))], isa, atol=2e-4)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", SPACE)
def test_blocked(name, isa):
    check_few(Interp(SPACE[name]), [sample((2, 21, 5, 7))], isa, blocks=[isa.lanes], out_block=isa.lanes, atol=2e-4)


@pytest.mark.parametrize("shape", [(9,), (3, 9), (2, 3, 2, 4, 5), (1, 2, 2, 2, 3, 5)])
def test_ranks(shape):
    axes = tuple(taps(e, e + 17, 2) if axis in (1, len(shape) - 1) else None for axis, e in enumerate(shape))
    check_few(Interp(axes), [sample(shape)], atol=2e-4)


@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64", "float16", "bfloat16", "float64"])
def test_every_type(dtype, blocked):
    half = AxisTaps(((0, 1),) * 18, ((0.5, 0.5),) * 18)
    x = np.abs(sample((1, 5, 4, 3))).astype(dtype)
    layout = {"blocks": [8], "out_block": 8} if blocked else {}
    rounding = {"float16": 2e-3, "bfloat16": 1e-2}
    tolerance = {"rtol": rounding[dtype]} if dtype in rounding else {}
    check_few(Interp((None, None, half, half)), [x], AVX2, **layout, **tolerance)


def test_channels_of_blocked_tensors_are_refused():
    kind = TensorType((1, 16, 5), np.dtype("float32"))
    op = Interp((None, taps(16, 16, 2), None))
    with pytest.raises(LookupError, match="axis 1"):
        choose_kernel(op, [dense(kind, 16)], dense(op.infer([kind]), 16), HOST)
