"""Strassen's scheme by float16 weights that stay as they are: outputs have the bits of the kernel that stores sums.

    float16 ─ RawStrassenKernel ──────────┐
w ─┤                                      ├─ equal
    float16 ─ float32 ─ TwoLevelStrassen ─┘
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.strassen.kernel import TwoLevelStrassenKernel
from brickrt.ops.cpu.strassen.raw_kernel import RawStrassenKernel, even_columns
from brickrt.ops.cpu.strassen.sizes import CHUNKS
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.harness import AVX2, HOST, run_kernel

ISAS = pytest.mark.parametrize("isa", [HOST, AVX2], ids=["avx512", "avx2"])
CHUNK = CHUNKS[2]


def both(op, x, w, isa, box=None):
    """The outputs of both kernels in a box."""
    images = isinstance(op, Conv)
    shape = evaluate_whole(op, [x, w.astype(np.float32)]).shape
    how = {"packed": [False, True], "blocks": [isa.lanes if images else 1, 1], "out_block": isa.lanes if images else 1}
    box = Boxes.whole(shape) if box is None else box
    raw = run_kernel(op, [x, w], box, isa, kernel_cls=RawStrassenKernel, **how)
    return raw, run_kernel(op, [x, w.astype(np.float32)], box, isa, kernel_cls=TwoLevelStrassenKernel, **how)


def sample(rows, depth, columns, seed=0):
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal((rows, depth)), rng.standard_normal((depth, columns))
    return x.astype(np.float32), w.astype(np.float16)


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from([HOST, AVX2]),
    st.integers(1, 70),
    st.sampled_from([1, 17, 64, 100, 256]),
    st.sampled_from([1, 31, 64, 130]),
)
def test_bits_are_those_of_stored_sums(isa, rows, depth, columns):
    x, w = sample(rows, depth, columns)
    raw, stored = both(MatMul(), x, w, isa)
    np.testing.assert_array_equal(raw, stored)
    want = x.astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(raw, want, rtol=0, atol=1e-5 * np.abs(want).max())


@ISAS
def test_k_in_chunks_and_columns_of_a_box(isa):
    x, w = sample(9, 2 * CHUNK + 40, 200)
    for lo, hi in ((128, 200), (3, 77)):
        raw, stored = both(MatMul(), x, w, isa, Boxes.one((0, lo), (9, hi)))
        np.testing.assert_array_equal(raw, stored)


def test_pointwise_convolution():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 72, 6, 7)).astype(np.float32)
    w = rng.standard_normal((90, 72, 1, 1)).astype(np.float16)
    raw, stored = both(Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1, False, None), x, w, HOST)
    np.testing.assert_array_equal(raw, stored)


@ISAS
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e8])
def test_rows_that_must_not_be_mixed(isa, value):
    """They are computed by elements of the parts, times their columns' sizes."""
    x, w = sample(11, 70, 61)
    w[:, 5] *= np.float16(2**-12)
    for row in (0, 4, 10):
        x[row, 7 * row % 70] = value
    raw, stored = both(MatMul(), x, w, isa)
    np.testing.assert_array_equal(raw, stored)
    assert np.isfinite(raw).sum() == (raw.size if np.isfinite(value) else 8 * 61)


@pytest.mark.parametrize("value", [np.nan, -np.inf, 65504, 2.0**-24])
def test_any_weights(value):
    """What float16 holds: no column is divided, which could lose bits of its small elements."""
    x, w = sample(9, 64, 70)
    w[3, 60], w[4, 60], w[:, 2] = value, 2.0**-24, 0
    raw, stored = both(MatMul(), x, w, HOST)
    np.testing.assert_array_equal(raw, stored)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 0x7BFF), st.sampled_from([0, 0x8000])), min_size=6, max_size=6))
def test_even_columns_are_the_weights(bits):
    """Finite numbers by their bits: Hypothesis throws most floats of 16 bits away, and at times complains of it."""
    b = np.array([size | sign for size, sign in bits], np.uint16).view(np.float16).reshape(2, 3)
    even, sizes = even_columns(b)
    np.testing.assert_array_equal(even.astype(np.float64) * sizes, b)
    largest = np.abs(even.astype(np.float64)).max(0)
    live = largest[largest > 0]
    assert live.size == 0 or live.max() < 2 * 2.0 ** np.floor(np.log2(live.min())) * (1 + 1e-9)


@ISAS
def test_memory_is_that_of_the_weights(isa):
    x, w = sample(64, 256, 512)
    _, packed = made(isa, x, w)
    assert packed <= 1.02 * w.nbytes


def made(isa, x, w):
    """The kernel, and the bytes that it packs."""
    y = dense(TensorType((len(x), w.shape[1]), np.dtype(np.float32)))
    a, b = (dense(TensorType(each.shape, each.dtype)) for each in (x, w))
    _, (one,) = RawStrassenKernel.classify(MatMul(), (a, b), y, Boxes.whole(y.shape), isa)
    kernel = RawStrassenKernel(MatMul(), (a, b), y, isa, (False, True), one)
    return kernel, sum(part.nbytes for part in kernel.pack_parts(1, w))
