"""The pattern of pairs: every element of K once, and sums that are those of products."""

import numpy as np

from brickrt.ops.cpu.paired.pairing import PAIRS, PARTS, PERIOD, SIGNS, elements, pair_products


def test_every_element_is_multiplied_once():
    assert sorted(n for part in PARTS for n in elements(part)) == list(range(PERIOD))


def test_no_pair_lies_in_two_vectors():
    """Vectors have four lanes or a multiple of them."""
    assert all(n // 4 == (n + 1) // 4 for n in PAIRS)


def test_sums_are_those_of_products():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(2 * PERIOD), rng.standard_normal((2 * PERIOD, 3))
    total = np.zeros(3)
    for n, sign in enumerate(SIGNS * 2):
        if sign:
            total += sign * (a[n] + sign * b[n + 1]) * (a[n + 1] + sign * b[n])
        elif SIGNS[(n - 1) % PERIOD] == 0:
            total += a[n] * b[n]
    np.testing.assert_allclose(total - pair_products(a[:, None]) - pair_products(b), a @ b, rtol=1e-5)


def test_signs_take_turns():
    """What pairs of equal elements add too much nearly cancels."""
    assert abs(pair_products(np.ones((PERIOD, 1)))[0]) <= 1
