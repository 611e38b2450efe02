"""Sine, cosine and tangent where reduction matters: next to multiples of π/2, far away, and beside such."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.cpu.arithmetic.functions.trigonometry import LARGEST_ARGUMENT
from tests.ops.cpu.arithmetic.functions.test_vector_math import EXACT, ISAS, MOST_ULP, run, ulps

FUNCTIONS_HERE = pytest.mark.parametrize("name", ["sin", "cos", "tan"])
FAR_ONES = np.array([1.1e5, -3e7, 1e20, np.inf, -np.inf, np.nan, 3.4e38, -1e-45], np.float32)


def near_zeros() -> np.ndarray:
    """The floats around each multiple of π/2, up to and beyond where the C library is called."""
    middle = (np.arange(1, 70_000) * (np.pi / 2)).astype(np.float32)
    around = [middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(0))]
    return np.concatenate([*around, *(-part for part in around)])[: middle.size * 6 // 16 * 16]


@ISAS
@FUNCTIONS_HERE
def test_next_to_zeros(name, isa, lanes):
    x = near_zeros()
    worst = ulps(run(name, x, isa, lanes), EXACT[name](x.astype(np.float64)))
    assert worst.max() <= MOST_ULP[name], f"{name}({x[worst.argmax()]!r})"


@ISAS
@FUNCTIONS_HERE
def test_elements_beside_far_ones_keep_their_bits(name, isa, lanes):
    """The C library's results are others than those of the polynomials, for some of these."""
    x = np.random.default_rng(0).uniform(-LARGEST_ARGUMENT, LARGEST_ARGUMENT, 4096).astype(np.float32)
    mixed = x.copy()
    mixed[::5] = np.resize(FAR_ONES, mixed[::5].size)
    alone, beside = run(name, x, isa, lanes), run(name, mixed, isa, lanes)
    same = np.arange(x.size) % 5 > 0
    np.testing.assert_array_equal(beside[same], alone[same])
    with np.errstate(invalid="ignore"):
        want = EXACT[name](mixed.astype(np.float64))
    np.testing.assert_allclose(beside, want, rtol=3e-7)


@ISAS
@FUNCTIONS_HERE
def test_bits_in_vectors_of_any_length(name, isa, lanes):
    x = np.concatenate([np.random.default_rng(1).uniform(-300, 300, 952).astype(np.float32), FAR_ONES])
    whole = run(name, x, isa, lanes)
    for other in (1, 2, 3, 5, 32):
        np.testing.assert_array_equal(run(name, x, isa, other), whole, f"in vectors of {other}")
