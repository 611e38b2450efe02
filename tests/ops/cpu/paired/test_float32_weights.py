"""Products by float32 weights of any magnitude, whose error is in proportion to a row and a column."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.paired.kernel import PairedKernel
from brickrt.ops.cpu.paired.scheme import scaled_columns
from brickrt.ops.cpu.strassen.sizes import CHUNKS
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes
from tests.support.cpu.harness import AVX2, HOST, ZEN4, run_kernel

ISAS = pytest.mark.parametrize("isa", [HOST, AVX2], ids=["avx512", "avx2"])
TINY = float(np.finfo(np.float32).tiny)
ERROR = 1.5e-7  # of |row| · |column|


def multiplied(x, w, isa=HOST):
    box = Boxes.whole((len(x), w.shape[1]))
    return run_kernel(MatMul(), [x, w], box, isa, packed=[False, True], kernel_cls=PairedKernel)


def error(x, w, isa=HOST):
    """The largest error, in parts of the lengths of its row and column. Where a column's are subnormal numbers, or near
    that, so is the error beside a row."""
    a, b = x.astype(np.float64), w.astype(np.float64)
    rows, columns = np.linalg.norm(a, axis=1)[:, None], np.linalg.norm(b, axis=0)
    lost = TINY * np.maximum(1, rows)
    return ((np.abs(multiplied(x, w, isa) - a @ b) - lost).clip(0) / np.maximum(rows * columns, TINY)).max()


ROWS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x / (1 + np.exp(-1.7 * x)),
    "far from zero": lambda x: np.abs(x) + 1,
    "one value": np.ones_like,
}


@pytest.mark.parametrize("isa", [HOST, AVX2, ZEN4], ids=["avx512", "avx2", "zen4"])
@pytest.mark.parametrize("kind", ROWS)
def test_rows_of_one_sign(kind, isa):
    """What pairs add too much does not add up on the way, as their signs take turns."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((26, 2 * CHUNKS[0])), rng.standard_normal((2 * CHUNKS[0], 40)).astype(np.float32)
    assert error(ROWS[kind](x).astype(np.float32), w, isa) < ERROR


@ISAS
@settings(max_examples=5, deadline=None)
@given(st.data())
def test_rows_and_columns_of_any_magnitude(isa, data):
    """Rows from subnormal to nearly too large, columns the same where their product with the rows is not."""
    rng = np.random.default_rng(0)
    rows = data.draw(st.lists(st.integers(-148, 60), min_size=9, max_size=9))
    columns = data.draw(st.lists(st.integers(-148, 60), min_size=33, max_size=33))
    x = np.ldexp(rng.standard_normal((9, 100)), np.array(rows)[:, None]).astype(np.float32)
    w = np.ldexp(rng.standard_normal((100, 33)), columns).astype(np.float32)
    assert error(x, w, isa) < ERROR


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_columns_of_zeros_are_zero(dtype):
    """Their sums would be what is left of the products of rows with themselves. An infinity times 0 is NaN."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((20, 64)).astype(np.float32), rng.standard_normal((64, 40)).astype(dtype)
    w[:, 3:20] = 0
    x[4, 5] = np.inf
    got = multiplied(x, w)[:, 3:20]
    assert np.isnan(got[4]).all() and not np.delete(got, 4, 0).any()


@pytest.mark.parametrize("value", [1e-45, 1e-40, 3e38])
def test_columns_of_one_value_at_the_ends(value):
    x, w = np.eye(20, dtype=np.float32), np.ones((20, 40), np.float32)
    w[:, 7] = value
    np.testing.assert_allclose(multiplied(x, w), w, rtol=1e-6)


def test_infinities_meet_weights_that_scaling_would_lose():
    """Such a matrix is multiplied as it is: an infinity times a weight that is not 0 is no NaN."""
    x, w = np.ones((3, 64), np.float32), np.ones((64, 40), np.float32)
    x[1, 5], w[5, 2], w[6, 2] = np.inf, 1e-45, 1e30
    got = multiplied(x, w)
    assert np.isposinf(got[1]).all()
    np.testing.assert_allclose(np.delete(got, 1, 0), np.delete(evaluate_whole(MatMul(), [x, w]), 1, 0), rtol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=8, max_size=8), st.sampled_from([np.float16, np.float32]))
def test_scaled_columns_are_the_weights(bits, dtype):
    """Any numbers, but for those that are not finite, or too small beside the largest of a column to be scaled."""
    b = np.array(bits, np.int32).view(dtype)[:8].reshape(4, 2)
    with np.errstate(invalid="ignore"):  # NaN that signal
        sizes = np.abs(b.astype(np.float64))
    if (known := scaled_columns(b)) is None:
        assert not np.isfinite(b).all() or (sizes[sizes > 0].min() < TINY and sizes.max() >= 2**16)
        return
    scaled, back = known
    np.testing.assert_array_equal(scaled.astype(np.float64) * back, b)
    np.testing.assert_array_equal(back == 0, (b == 0).all(axis=0))
    assert ((back >= TINY) & (np.frexp(back)[0] == 0.5) | (back == 0)).all()
    largest = np.abs(scaled.astype(np.float64)).max(0)
    assert (largest < 2**16).all() and ((largest >= 2**15) | (back == TINY) | (back == 0)).all()
