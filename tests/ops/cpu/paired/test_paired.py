"""Products with paired elements of K against the definition in float64.

|error| of an output  ≤  ERROR · |its row of a| · |its column of b|
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.paired import scheme
from brickrt.ops.cpu.paired.kernel import PairedKernel
from brickrt.ops.cpu.paired.scheme import tile_height
from brickrt.ops.cpu.strassen.sizes import CHUNKS
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes, TensorType
from tests.ops.cpu.strassen.test_any_data import VALUES, check_outlier
from tests.support.cpu.conv_cases import middle
from tests.support.cpu.harness import AVX2, HOST, check, run_kernel

ISAS = pytest.mark.parametrize("isa", [HOST, AVX2], ids=["avx512", "avx2"])
HALF, F32 = np.float16, np.dtype(np.float32)
CHUNK = CHUNKS[0]
ERROR = 5e-7  # among a quarter of a million outputs: 3.8e-7 for three or four elements of K, 2e-7 for many
SUM = apply("max", apply("add", arg(0, F32), arg(1, F32)), const(0, F32))


def sample(rows, depth, columns, dtype=HALF):
    rng = np.random.default_rng(rows + depth + columns)
    x, w = rng.standard_normal((rows, depth)), rng.standard_normal((depth, columns))
    return x.astype(np.float32), w.astype(dtype)


def product(x, w, isa, box=None):
    """The outputs of a box, which are near the definition's."""
    box = Boxes.whole((len(x), w.shape[1])) if box is None else box
    got = run_kernel(MatMul(), [x, w], box, isa, packed=[False, True], kernel_cls=PairedKernel)
    a, b = x.astype(np.float64), w.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=0)
    assert (np.abs(got - (a @ b)[box.slices()]) <= ERROR * lengths[box.slices()]).all()
    return got


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from([HOST, AVX2]),
    st.integers(1, 70),
    st.sampled_from([1, 3, 17, 64, 100]),
    st.sampled_from([1, 31, 64, 70]),
    st.sampled_from([HALF, np.float32]),
)
@example(HOST, 49, 100, 70, HALF)
@example(AVX2, 19, 17, 31, np.float32)
@example(HOST, 42, 3, 70, np.float32)  # 3.1e-7
def test_products(isa, rows, depth, columns, dtype):
    product(*sample(rows, depth, columns, dtype), isa)


@ISAS
def test_bits_do_not_depend_on_boxes(isa):
    """K in chunks; columns are cut in blocks, rows in tiles."""
    x, w = sample(27, 2 * CHUNK + 40, 70)
    whole = product(x, w, isa)
    for lo, hi in (((0, 32), (27, 70)), ((3, 3), (20, 45)), ((26, 0), (27, 70))):
        box = Boxes.one(lo, hi)
        np.testing.assert_array_equal(product(x, w, isa, box), whole[box.slices()])


@ISAS
def test_rows_and_columns_of_any_length(isa):
    """Each is scaled by itself: no error is in proportion to another one."""
    x, w = sample(28, 64, 40)
    x *= np.float32(2.0) ** np.arange(-100, 40, 5)[:, None].astype(np.float32)
    w *= np.float16(2.0) ** (np.arange(40) % 9 - 5).astype(np.float16)
    product(x, w, isa)


def test_rows_too_short_to_be_scaled():
    x, w = sample(5, 64, 40)
    x *= np.array([1, 1e-33, 0, 1e-36, 1e20], np.float32)[:, None]
    assert not product(x, w, HOST)[2].any()


@ISAS
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_pointwise_convolutions(strides, isa):
    rng = np.random.default_rng(1)
    op = Conv((1, 1), strides, (1, 1), (0, 0), (0, 0), 1, True, SUM)
    x, bias = rng.standard_normal((2, 72, 6, 7)).astype(np.float32), rng.standard_normal(90).astype(np.float32)
    w = rng.standard_normal((90, 72, 1, 1)).astype(HALF)
    more = rng.standard_normal((2, 90, *(-(-side // strides[0]) for side in (6, 7)))).astype(np.float32)
    arrays = [x, w, bias, more]
    want = evaluate_whole(op, [a.astype(np.float32) for a in arrays])
    lanes, packed = isa.lanes, [False, True, True, False]
    how = {"blocks": [lanes, 1, 1, lanes], "out_block": lanes, "packed": packed, "kernel_cls": PairedKernel}
    how["boxes"] = [Boxes.whole(want.shape), middle(want.shape, lanes)]
    check(op, arrays, isa, expected=want, rtol=0, atol=1e-5 * np.abs(want).max(), **how)


def test_batches_bias_and_residual():
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 5, 64), (64, 61), (61,), (2, 5, 61))]
    want = evaluate_whole(MatMul(True, SUM), arrays)
    how = {"packed": [False, True, True, False], "kernel_cls": PairedKernel, "expected": want}
    check(MatMul(True, SUM), arrays, HOST, rtol=0, atol=1e-5 * np.abs(want).max(), **how)


@pytest.mark.parametrize("value", VALUES)
def test_an_outlier_stays_in_its_row(value):
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape).astype(np.float32) for shape in ((11, 70), (70, 61), (61,))]
    for row in range(0, 11, 5):
        check_outlier(MatMul(True), given, HOST, PairedKernel, value, (row, 6 * row % 70))
    image = [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 72, 4, 7), (90, 72, 1, 1), (90,))]
    op = Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1, True, None)
    check_outlier(op, image, AVX2, PairedKernel, value, (0, 40, 2, 2))


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_weights_that_are_not_finite(value):
    x, w = sample(9, 64, 70)
    w[3, 60] = value
    got = run_kernel(MatMul(), [x, w], Boxes.whole((9, 70)), HOST, packed=[False, True], kernel_cls=PairedKernel)
    want = evaluate_whole(MatMul(), [x, w.astype(np.float32)])
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    np.testing.assert_array_equal(got[:, 60], want[:, 60])
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want[np.isfinite(want)]).max())


def test_tiles_are_as_high_as_pays():
    assert [tile_height(rows, 24) for rows in (1, 24, 49, 128, 196, 3136)] == [12, 24, 17, 16, 22, 24]
    assert {tile_height(rows, 8) for rows in range(1, 99)} == {8}
    assert len({tile_height(rows, 24) for rows in range(1, 3000)}) <= 8


def kernel_of(isa, x, w):
    y = dense(TensorType((len(x), w.shape[1]), F32))
    a, b = (dense(TensorType(each.shape, each.dtype)) for each in (x, w))
    _, (one,) = PairedKernel.classify(MatMul(), (a, b), y, Boxes.whole(y.shape), isa)
    return PairedKernel(MatMul(), (a, b), y, isa, (False, True), one)


@ISAS
def test_memory_is_that_of_the_weights(isa):
    x, w = sample(64, 256, 512)
    assert sum(part.nbytes for part in kernel_of(isa, x, w).pack_parts(1, w)) <= 1.02 * w.nbytes


def test_packing_takes_little_more():
    x, w = sample(64, 1024, 4096)
    kernel = kernel_of(HOST, x, w)
    tracemalloc.start()
    try:
        kernel.pack_parts(1, w)
        assert tracemalloc.get_traced_memory()[1] < 2 * w.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("value", [0.5, np.inf])
def test_columns_packed_a_few_at_a_time(value, monkeypatch):
    x, w = sample(64, 70, 93)
    w[3, 60] = value
    whole = kernel_of(HOST, x, w).pack_parts(1, w)
    monkeypatch.setattr(scheme, "SLICE", 1)
    for part, wanted in zip(kernel_of(HOST, x, w).pack_parts(1, w), whole, strict=True):
        np.testing.assert_array_equal(part, wanted)
