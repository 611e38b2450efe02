"""Products that a model computes in float16, in tile registers: 16 bits of each factor, against float64.

|error| of an output  ≤  ERROR · |what it reads| · |its weights|: a twentieth of what rounding to float16 may make.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.amx.factors import split_weights
from brickrt.ops.cpu.amx.kernel import AmxMaker
from brickrt.ops.cpu.amx.sizes import HALF_PRODUCT, HALVES, SPLIT, factors_of
from brickrt.ops.operators.conv import ConvTranspose
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes
from tests.ops.cpu.amx.test_brought import half_weights
from tests.ops.cpu.amx.test_products import conv, drawn, lengths
from tests.support.cpu.harness import random_boxes, run_kernel
from tests.support.cpu.tiles import HOST_TILES, needs_tiles

F32, F16 = np.dtype(np.float32), np.dtype(np.float16)
ERROR = 3 * 2.0**-16 + 3e-7  # each factor to 16 bits, the product of the last eight, and sums
KINDS = ("float32", "float16")  # of weights


def factors(kind, *shapes):
    return half_weights(*shapes[:2], bias=(shapes[2:] or (None,))[0]) if kind == "float16" else drawn(kind, *shapes)


def outputs(op, given, box, *, packed=True, halves=True):
    """Those that the kernel computes."""
    images = not isinstance(op, MatMul)
    constant = [0 < i < op.main and packed for i in range(len(given))]
    blocks = [16 if images and not fixed and given[i].ndim > 2 else 1 for i, fixed in enumerate(constant)]
    return run_kernel(
        replace(op, halves=halves), given, box, HOST_TILES, blocks=blocks, out_block=16 if images else 1,
        packed=constant, kernel_cls=AmxMaker(),
    )  # fmt: skip


def check(op, given, bound, *, packed=True):
    want = evaluate_whole(op, [each.astype(np.float64) for each in given])
    for box in random_boxes(want.shape, 3, 16 if not isinstance(op, MatMul) else 1):
        part = box.slices()
        assert (np.abs(outputs(op, given, box, packed=packed) - want[part]) <= ERROR * bound[part]).all()


def test_only_marked_products_have_fewer_parts():
    marked = MatMul(halves=True)
    assert (factors_of(MatMul(), F32, F32), factors_of(MatMul(), F32, F16)) == (SPLIT, HALVES)
    assert factors_of(marked, F32, F32) is factors_of(marked, F32, F16) is HALF_PRODUCT
    assert [len(kind.order) for kind in (SPLIT, HALVES, HALF_PRODUCT)] == [6, 5, 3]


@needs_tiles
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("op", "x", "outs"),
    [
        (conv((3, 3), pads=(1, 1)), (17, 5, 6), 20),
        (conv((3, 2), (2, 3), pads=(1, 0), end=(0, 1)), (40, 6, 8), 70),
        (conv((1, 1)), (33, 7, 9), 50),
        (conv((3,), dilations=(2,), pads=(1,)), (3, 9), 33),
    ],
    ids=["3x3", "strides", "pointwise", "1d dilated"],
)
def test_convolutions(kind, op, x, outs):
    shapes = (2, *x), (outs, x[0], *op.kernel), (outs,)
    given = factors(kind, *shapes)
    check(replace(op, bias=True), given, lengths(op, given))


@needs_tiles
@pytest.mark.parametrize("kind", KINDS)
def test_transposed_windows_that_lie_side_by_side(kind):
    op = ConvTranspose((2, 2), (2, 2), (1, 1), (0, 0), (0, 0), (0, 0))
    given = factors(kind, (1, 40, 5, 6), (40, 20, 2, 2))
    bound = evaluate_whole(op, [np.abs(each.astype(np.float64)) for each in given])
    check(op, given, bound)


@needs_tiles
@settings(max_examples=8, deadline=None)
@given(st.sampled_from([*KINDS, "computed"]), st.integers(1, 70), st.integers(1, 150), st.integers(1, 90))
def test_matrices_of_any_size(kind, rows, depth, columns):
    given = factors(kind if kind in KINDS else "float32", (rows, depth), (depth, columns))
    check(MatMul(), given, lengths(MatMul(), given), packed=kind != "computed")


@needs_tiles
@pytest.mark.parametrize("kind", [*KINDS, "computed"])
def test_errors_are_of_either_sign(kind):
    """Products of positive numbers, whose errors would add up if all were of one sign."""
    given = [
        np.abs(each) + each.dtype.type(0.1)
        for each in factors(kind.replace("computed", "float32"), (64, 2048), (2048, 64))
    ]
    want = given[0].astype(np.float64) @ given[1].astype(np.float64)
    got = outputs(MatMul(), given, Boxes.whole(want.shape), packed=kind != "computed")
    error = got / want - 1
    assert np.abs(error).max() < 3e-6
    assert abs(error.mean()) < 5e-7


@needs_tiles
@pytest.mark.parametrize("kind", [*KINDS, "computed"])
@pytest.mark.parametrize("factor", [0, 1])
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf, 6e4, 3.4e38, 1e-42, 2e-39])
def test_a_value_that_parts_do_not_hold(kind, factor, value):
    """It changes the outputs that read it alone, and these are as the definition has them."""
    given = factors(kind.replace("computed", "float32"), (30, 40), (40, 20))
    with np.errstate(over="ignore"):
        given[factor][7, 3] = value
    with np.errstate(invalid="ignore"):
        want = given[0].astype(np.float64) @ given[1].astype(np.float64)
    got = outputs(MatMul(), given, Boxes.whole(want.shape), packed=kind != "computed")
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(got, want.astype(np.float32), rtol=2.0**-14, atol=3e-4)


@needs_tiles
@pytest.mark.parametrize("kind", [*KINDS, "computed"])
def test_eight_bits_of_each_factor_are_exact(kind):
    """Such as whole numbers to 256, and their thirty-second parts."""
    rng, narrow = np.random.default_rng(0), np.dtype("float16" if kind == "float16" else "float32")
    given = [rng.integers(-256, 257, (30, 40)).astype(F32) / 32, rng.integers(-256, 257, (40, 20)).astype(narrow)]
    want = given[0].astype(np.float64) @ given[1].astype(np.float64)
    got = outputs(MatMul(), given, Boxes.whole(want.shape), packed=kind != "computed")
    np.testing.assert_array_equal(got, want)


@needs_tiles
@pytest.mark.parametrize("kind", [*KINDS, "computed"])
def test_bits_do_not_depend_on_boxes(kind):
    given = factors(kind.replace("computed", "float32"), (97, 70), (70, 90))
    large = outputs(MatMul(), given, Boxes.whole((97, 90)), packed=kind != "computed")
    for lo, hi in (((0, 0), (50, 90)), ((50, 0), (97, 48)), ((50, 48), (97, 90))):
        box = Boxes.one(lo, hi)
        np.testing.assert_array_equal(large[box.slices()], outputs(MatMul(), given, box, packed=kind != "computed"))


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=2))
def test_two_parts_of_weights_are_sixteen_bits(values):
    """No part of a finite weight is infinite, and what is lost is less than a 2**16th, or what tiles count as zero."""
    w = np.array(values, np.float32).reshape(2, 1)
    parts = [words.view(np.uint16).astype(np.uint32) << 16 for words in split_weights(HALF_PRODUCT, w)]
    kept = sum(part.view(np.float32).astype(np.float64) for part in parts).reshape(2, 1)
    finite, wide = np.isfinite(w), w.astype(np.float64)
    assert (kept[~finite] == wide[~finite]).all()
    assert (np.abs(kept[finite] - wide[finite]) <= np.maximum(np.abs(wide[finite]) * 2.0**-16, 2.0**-133)).all()
