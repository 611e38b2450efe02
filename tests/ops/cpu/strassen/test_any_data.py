"""Strassen's scheme on rows that it must not mix: what one row holds changes no other.

1 1 1 1           NaN, an infinity or an outlier in a row changes the outputs of this row alone, as the definition
1 1 x 1    →      has it; the others err by less than 1e-5 of the largest of them
"""

import numpy as np
import pytest

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.strassen.sizes import CHUNKS
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes
from tests.ops.cpu.strassen.test_strassen import F32, KERNELS, sample
from tests.support.cpu.harness import AVX2, HOST, run_kernel
from tests.support.cpu.outliers import with_outlier

VALUES = (np.nan, np.inf, -np.inf, 1e4, -1e8, 3e38)


def check_outlier(op, given, isa, kernel, value, place):
    """`value` at one place of the first operand."""
    images = isinstance(op, Conv)
    given, before, want = with_outlier(op, given, value, place)
    packed = [0 < i < 2 + op.bias for i in range(len(given))]
    blocks = [isa.lanes if images and not constant else 1 for constant in packed]
    out_block = isa.lanes if images else 1
    box = Boxes.whole(want.shape)
    got = run_kernel(op, given, box, isa, blocks=blocks, out_block=out_block, packed=packed, kernel_cls=kernel)
    outside = want == before
    assert np.abs(got[outside] - want[outside]).max(initial=0) < 1e-5 * np.abs(want[outside]).max()
    got, want = got[~outside], want[~outside]
    if not np.isfinite(value):
        np.testing.assert_array_equal(got, want.astype(np.float32))
    elif abs(value) < 1e30:
        assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("isa", [HOST, AVX2], ids=["avx512", "avx2"])
@pytest.mark.parametrize("value", VALUES)
def test_an_outlier_in_every_row(value, isa, kernel):
    op, given = MatMul(True), sample((11, 70), (70, 61), (61,))
    for row in range(11):
        check_outlier(op, given, isa, kernel, value, (row, 6 * row % 70))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("value", VALUES)
def test_an_outlier_where_k_is_swept_in_chunks(value, kernel):
    depth = 2 * CHUNKS[1] + 40
    for place in ((0, 2, 3), (1, 8, depth - 1)):
        check_outlier(MatMul(), sample((2, 9, depth), (depth, 130)), HOST, kernel, value, place)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_an_outlier_in_an_image(strides, value, kernel):
    op = Conv((1, 1), strides, (1, 1), (0, 0), (0, 0), 1, True, None)
    given = sample((2, 72, 10, 7), (90, 72, 1, 1), (90,))
    for place in ((0, 0, 0, 0), (1, 71, 8, 6), (0, 40, 4, 2)):
        check_outlier(op, given, AVX2 if strides == (2, 2) else HOST, kernel, value, place)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("value", [1e20, 1e-30])
def test_rows_of_zeros_are_the_bias(value, kernel):
    """A row that is not zero among many that are, with a residual that is added once."""
    op = MatMul(True, apply("max", apply("add", arg(0, F32), arg(1, F32)), const(-1e38, F32)))
    given = sample((13, 64), (64, 70), (70,), (13, 70))
    given[0][:] = 0
    given[0][5] = value
    want = evaluate_whole(op, given)
    box = Boxes.whole(want.shape)
    got = run_kernel(op, given, box, HOST, packed=[False, True, True, False], kernel_cls=kernel)
    np.testing.assert_array_equal(np.delete(got, 5, 0), np.delete(want, 5, 0))
    np.testing.assert_allclose(got[5], want[5], rtol=1e-5, atol=1e-5 * np.abs(want[5]).max())


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("value", [10.0, 30.0, 100.0, 1e3, 1e6])
def test_rows_of_every_size(value, kernel):
    """Each row is as exact as if it were alone."""
    given = sample((16, 256), (256, 64))
    given[0][::3] *= value
    given[0][1::5] /= value
    want = given[0].astype(np.float64) @ given[1].astype(np.float64)
    got = run_kernel(MatMul(), given, Boxes.whole(want.shape), HOST, packed=[False, True], kernel_cls=kernel)
    assert (np.abs(got - want).max(axis=1) < 2e-5 * np.abs(want).max(axis=1)).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_columns_of_every_size(kernel):
    """Each column is as exact as if it were alone; columns of zeros give zeros."""
    given = sample((16, 256), (256, 96))
    given[1][:, ::3] *= 1e20
    given[1][:, 1::7] *= 1e-15
    given[1][:, 2::5] = 0
    want = given[0].astype(np.float64) @ given[1].astype(np.float64)
    got = run_kernel(MatMul(), given, Boxes.whole(want.shape), HOST, packed=[False, True], kernel_cls=kernel)
    assert (np.abs(got - want).max(axis=0) <= 2e-5 * np.abs(want).max(axis=0)).all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite(value, kernel):
    given = sample((9, 64), (64, 96))
    given[1][40, 33] = value
    given[0][3, 40] = 0
    with np.errstate(invalid="ignore"):
        want = given[0].astype(np.float64) @ given[1].astype(np.float64)
        got = run_kernel(MatMul(), given, Boxes.whole(want.shape), HOST, packed=[False, True], kernel_cls=kernel)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
