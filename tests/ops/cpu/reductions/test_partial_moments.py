"""Kernels of partial moments."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.cpu.kernel import choose_kernel
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.reductions import partial_moments as moment_kernels  # noqa: F401  (registers the kernels)
from brickrt.ops.operators.partial_moments import PartialMoments
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.harness import AVX2, HOST, check, run_kernel

ISAS = [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")]
SHAPES = [((2, 37, 3, 19), 8), ((1, 16, 2, 5), 64), ((1, 20, 333), 160), ((1, 3, 2, 2, 17), 1), ((1, 1, 3, 40), 8)]


def data(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize(("shape", "length"), SHAPES)
def test_sums_and_squares(shape, length, blocked, isa):
    block = isa.lanes if blocked else 1
    check(PartialMoments(length), [data(*shape)], isa, blocks=[block], out_block=block, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1,), (700,), (3, 1), (5, 129)])
def test_few_dimensions(shape):
    check(PartialMoments(64), [data(*shape)], atol=1e-5)


@pytest.mark.parametrize(("dtype", "block"), [("float16", 1), ("float64", 1), ("float64", 16)])
def test_dtypes(dtype, block):
    x = data(1, 19, 2, 70, dtype=dtype)
    check(PartialMoments(32), [x], blocks=[block], out_block=block, rtol=1e-5 if dtype == "float16" else 1e-13)


@pytest.mark.parametrize("block", [1, 16])
def test_bits_do_not_depend_on_the_box(block):
    x, op = data(1, 16, 2, 100), PartialMoments(24)
    whole = run_kernel(op, [x], Boxes.whole((1, 16, 2, 10)), blocks=[block], out_block=block)
    for first, end in ((0, 1), (1, 2), (3, 8), (9, 10)):
        box = Boxes.one([0, 0, 1, first], [1, 16, 2, end])
        part = run_kernel(op, [x], box, blocks=[block], out_block=block, scratch=True)
        np.testing.assert_array_equal(part, whole[box.slices()])


@pytest.mark.parametrize("block", [1, 16])
def test_a_large_mean_takes_nothing_from_the_moments(block):
    x = data(1, 16, 2, 640) + np.float32(1e4)
    got = run_kernel(PartialMoments(64), [x], Boxes.whole((1, 16, 2, 20)), blocks=[block], out_block=block)
    parts = x.astype(np.float64).reshape(1, 16, 2, 10, 64)
    np.testing.assert_allclose(got[..., 0::2], parts.sum(axis=-1), rtol=1e-10)
    np.testing.assert_allclose(got[..., 1::2], parts.var(axis=-1) * 64, rtol=1e-6)


@pytest.mark.parametrize("block", [1, 16])
@pytest.mark.parametrize("special", [[np.inf], [-np.inf], [np.inf, -np.inf], [np.nan]])
def test_infinity_and_nan_stay_in_their_segment(special, block):
    x = data(1, 16, 1, 40)
    x[..., 17 : 17 + len(special)] = special
    check(PartialMoments(16), [x], blocks=[block], out_block=block, atol=1e-5)


@pytest.mark.parametrize("block", [1, 16])
@pytest.mark.parametrize(("dtype", "size"), [("float32", 1e25), ("float32", 1e36), ("float64", 1e300)])
def test_squares_beyond_the_range(dtype, size, block):
    x = np.full((1, 16, 1, 64), size, dtype)
    x[..., ::2] = -size
    x[..., 7:9] /= 2
    got = run_kernel(PartialMoments(32), [x], Boxes.whole((1, 16, 1, 4)), blocks=[block], out_block=block)
    assert (got[..., 1::2] == np.inf).all()
    sums = x.reshape(1, 16, 1, 2, 32).sum(axis=-1, dtype=np.float64)
    np.testing.assert_allclose(got[..., ::2], sums, atol=size / 1e5)


def test_moments_of_whole_numbers_are_refused():
    with pytest.raises(ValueError, match=r"Moments of int32\[3,4\]: they are of floating-point numbers"):
        PartialMoments(2).infer([TensorType((3, 4), np.dtype(np.int32))])


def test_a_layout_is_kept():
    kind = TensorType((1, 16, 2, 64), np.dtype(np.float32))
    out = TensorType((1, 16, 2, 2), kind.dtype)
    with pytest.raises(LookupError):
        choose_kernel(PartialMoments(64), (dense(kind, 16),), dense(out), HOST)
