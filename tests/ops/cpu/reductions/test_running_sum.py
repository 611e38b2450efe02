"""Kernels of sums so far."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.operators.reduce import RunningSum
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.harness import AVX2, HOST, check, run_kernel

ISAS = [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")]


def numbers(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return (100 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 71, 37), 1), ((130, 5), 0), ((2, 4, 33, 3), 2), ((5, 40, 2, 17), 1), ((1, 1, 1), 0)]
)
def test_sums_so_far(shape, axis, backward, isa):
    """Boxes begin within blocks of rows, and end there; rows are wider than vectors, and narrower."""
    check(RunningSum(axis, backward), [numbers(shape)], isa, atol=1e-3)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", ["float64", "int32", "int64", "uint64"])
def test_types(dtype, isa):
    x = np.abs(numbers((2, 70, 21))).astype(dtype)
    check(RunningSum(1), [x], isa, rtol=1e-12, atol=1e-12)


def test_wide_rows_in_pieces():
    check(RunningSum(0), [numbers((35, 2 * 1024 + 5))], boxes=[Boxes.one([0, 3], [35, 2051])], atol=1e-3)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("isa", ISAS)
def test_bits_do_not_depend_on_boxes(backward, isa):
    x = numbers((2, 97, 45))
    whole = run_kernel(RunningSum(1, backward), [x], Boxes.whole(x.shape), isa)
    for lo, hi in (([0, 0, 0], [1, 97, 13]), ([1, 31, 7], [2, 66, 8]), ([0, 96, 20], [2, 97, 45])):
        box = Boxes.one(lo, hi)
        got = run_kernel(RunningSum(1, backward), [x], box, isa, scratch=True)
        np.testing.assert_array_equal(got, whole[box.slices()])


def test_many_sums_stay_near_the_exact_ones():
    """One by one, 2^14 roundings of 0.1 to one side would make an error of 1e-4."""
    x = np.full((2**14, 16), 0.1, np.float32)
    check(RunningSum(0), [x], boxes=[Boxes.whole(x.shape)], rtol=1e-5, scratch=False)


@pytest.mark.parametrize(("shape", "dtype", "axis"), [((3, 4), "float32", 1), ((3, 4), "bool", 0), ((3,), "int32", -1)])
def test_what_has_no_sums_so_far_is_refused(shape, dtype, axis):
    with pytest.raises(ValueError, match="RunningSum"):
        RunningSum(axis).infer([TensorType(shape, np.dtype(dtype))])
