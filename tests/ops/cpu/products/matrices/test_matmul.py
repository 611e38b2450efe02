"""Matrix product kernels against the definition in float64."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.products.matrices import scheme
from brickrt.ops.cpu.products.matrices.kernel import MatMulKernel
from brickrt.ops.cpu.products.matrices.scheme import MOST_POINTERS
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu import harness
from tests.support.cpu.conv_cases import by_bricks
from tests.support.cpu.harness import AVX2, HOST, check

F32 = np.dtype(np.float32)
ISAS = [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")]
SUM = apply("max", apply("add", arg(0, F32), arg(1, F32)), const(0, F32))


def sample(*shapes, dtype="float32"):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def boxes_of(shape, lanes):
    """The whole; a middle one whose columns begin and end with blocks; one to the last column."""
    *batch, rows, columns = shape
    lo, hi = [e // 2 for e in batch], list(batch)
    blocks = columns // lanes
    middle = Boxes.one(
        [*lo, rows // 3, lanes if blocks > 2 else 0], [*hi, -(-2 * rows // 3), max(blocks - 1, 1) * lanes]
    )
    last = Boxes.one([0] * len(batch) + [0, blocks // 2 * lanes], [*hi, max(rows // 2, 1), columns])
    return [Boxes.whole(shape), last, middle.clip(shape)]


def check_product(op, arrays, isa, packed=True, scratch=True, **how):
    shape = op.infer([TensorType(a.shape, a.dtype) for a in arrays]).shape
    constant = [False, *[packed] * (len(arrays) - 1)]
    tolerance = 1e-12 if arrays[0].dtype == np.float64 else 3e-5
    how = {"boxes": boxes_of(shape, isa.lanes), "rtol": tolerance, "atol": tolerance} | how
    check(op, arrays, isa, packed=constant, scratch=scratch, **how)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("depth", "open_depth"), [(64, False), (128, False), (197, True), (256, True), (1500, True)])
def test_rows_of_a_tile_where_their_distance_is_a_size(depth, open_depth, isa):
    """There are no more than registers hold the addresses of; where K is known, they are constants of the code."""
    shapes = (750, depth), (depth, 64), (750, 64)
    a, b, out = (dense(TensorType(shape, F32)) for shape in shapes)
    kernel = MatMulKernel(MatMul(), (a, b), out, isa, (False, False), (0, 750, 0))
    assert (1 in kernel.open_dims(0)) == open_depth
    assert kernel.tile[1] <= MOST_POINTERS or not open_depth
    if isa == HOST and isa.registers > 16 and not isa.double_pumped:
        assert (kernel.tile[1] > MOST_POINTERS) != open_depth


SHAPES = {
    "vectors": [(1, 1), (1, 1)],
    "one row": [(1, 7), (7, 50)],
    "one column": [(9, 5), (5, 1)],
    "tiny": [(2, 3), (3, 4)],
    "odd": [(13, 6), (6, 37)],
    "many columns": [(3, 4), (4, 135)],
    "batch": [(3, 5, 4), (3, 4, 19)],
    "batch of one matrix": [(2, 3, 5, 4), (4, 19)],
    "b of one batch": [(3, 5, 4), (1, 4, 19)],
    "a of one batch": [(1, 5, 4), (3, 4, 19)],
    "crossed batches": [(2, 1, 3, 4), (3, 4, 17)],
    "six dimensions": [(1, 2, 1, 1, 3, 2), (2, 1, 2, 1, 2, 5)],
}


WIDE = ("one row", "one column", "odd", "many columns", "batch")  # whose rows or columns make several vectors or tiles


@pytest.mark.parametrize(
    ("name", "isa"),
    [(name, isa) for i, name in enumerate(SHAPES) for k, isa in enumerate((HOST, AVX2)) if name in WIDE or i % 2 == k],
)
def test_constant_columns(name, isa):
    check_product(MatMul(), sample(*SHAPES[name]), isa)


@pytest.mark.parametrize("name", SHAPES)
def test_columns_that_are_no_constants(name):
    check_product(MatMul(), sample(*SHAPES[name]), AVX2, packed=False)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("columns", [5, 32, 45])
def test_bias(columns, packed):
    check_product(MatMul(True), sample((2, 4, 6), (6, columns), (columns,)), HOST, packed)


@pytest.mark.parametrize("packed", [False, True])
def test_float64(packed):
    check_product(MatMul(True), sample((5, 6), (6, 21), (21,), dtype="float64"), AVX2, packed)


@pytest.mark.parametrize("shape", [(2, 4, 21), (4, 21), (21,), (1,), (4, 1), (2, 1, 1), (2, 1, 21), ()], ids=str)
@pytest.mark.parametrize("constant", [False, True])
def test_epilogue(shape, constant):
    check_product(MatMul(False, SUM), sample((2, 4, 6), (6, 21), shape), AVX2, constant, scratch=not constant)


def test_a_box_of_the_first_columns_leaves_the_others_alone():
    arrays = sample((3, 4), (4, 160))
    boxes = [Boxes.one((0, a * 16), (3, b * 16)) for a, b in [(0, 1), (0, 3), (2, 7), (4, 10)]]
    check_product(MatMul(), arrays, HOST, boxes=boxes)


@pytest.mark.parametrize("packed", [False, True])
def test_columns_cut_inside_blocks(packed):
    """As where only part of a product is read."""
    arrays = sample((3, 4), (4, 61), (61,), (3, 61))
    boxes = [Boxes.one((0, a), (3, b)) for a, b in [(0, 61), (60, 61), (3, 5), (5, 45), (7, 33), (16, 19)]]
    check_product(MatMul(True, SUM), arrays, AVX2, packed, boxes=boxes)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("brick", [(1, 3, 500), (2, 2, 16), (1, 7, 24), (2, 4, 8), (1, 4, 11)])
def test_bricks_make_the_whole(brick, packed):
    arrays = sample((2, 7, 5), (5, 61), (61,))
    got, _ = by_bricks(MatMul(True), arrays, brick, AVX2, [1, 1, 1], 1, [False, packed, packed])
    np.testing.assert_allclose(got, evaluate_whole(MatMul(True), arrays), rtol=3e-5, atol=3e-5)


def test_bricks_of_equal_rows_share_a_kernel():
    arrays = sample((10, 3), (3, 16))
    _, classes = by_bricks(MatMul(), arrays, (4, 500), AVX2, [1, 1], 1, [False, True])
    assert classes == 2  # 4, 4 and 2 rows


@contextmanager
def swept(depth: int, longest: int) -> Iterator[None]:
    """While it is open, K of `longest` elements and more is swept in parts of `depth`, by code compiled anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheme, "DEPTH", depth)
        patch.setattr(scheme, "LONG_DEPTH", longest)
        patch.setattr(harness, "_COMPILED", {})
        harness.compiled.cache_clear()
        yield
    harness.compiled.cache_clear()


@pytest.fixture
def parts_of_five():
    with swept(5, 6):
        yield


LONG = {
    "one element more": [(13, 6), (6, 37)],
    "whole parts": [(9, 10), (10, 64)],
    "batches": [(3, 30, 17), (3, 17, 19)],
    "one column": [(5, 12), (12, 1)],
    "rows that sizes would cover twice": [(17, 12), (12, 40)],
    "K is a size": [(11, 130), (130, 150)],
}


@pytest.mark.usefixtures("parts_of_five")
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", LONG)
def test_long_sums_in_parts(name, isa):
    check_product(MatMul(), sample(*LONG[name]), isa, packed=False)


@pytest.mark.usefixtures("parts_of_five")
def test_bias_and_epilogue_of_long_sums():
    arrays = sample((9, 23), (23, 61), (61,), (9, 61))
    boxes = [Boxes.one((0, a), (9, b)) for a, b in [(0, 61), (60, 61), (5, 45), (16, 19)]]
    check_product(MatMul(True, SUM), arrays, AVX2, packed=False, boxes=boxes)
    check_product(MatMul(True), sample((5, 16), (16, 21), (21,), dtype="float64"), AVX2, packed=False)


@pytest.mark.parametrize("brick", [(200, 200), (7, 24)])
def test_sums_in_parts_have_the_bits_of_whole_ones(brick):
    arrays = sample((17, 4105), (4105, 53))
    found = []
    for longest in (4096, 2**30):
        with swept(scheme.DEPTH, longest):
            found.append(by_bricks(MatMul(), arrays, brick, HOST, [1, 1], 1, [False, False])[0])
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], evaluate_whole(MatMul(), arrays), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("packed", "depth", "parts"), [(False, 4096, 8), (False, 4097, 9), (False, 4095, 1), (True, 9999, 1)]
)
def test_only_computed_columns_are_read_in_parts(packed, depth, parts):
    """Constant ones are streams that are prefetched."""
    a, b, out = (dense(TensorType(shape, F32)) for shape in [(96, depth), (depth, 96), (96, 96)])
    assert MatMulKernel(MatMul(), (a, b), out, HOST, (False, packed), (0, 96, 0)).chunks == parts


@st.composite
def products(draw):
    dims = st.integers(1, 3)
    batch = tuple(draw(st.lists(dims, max_size=2)))
    some = [tuple(1 if draw(st.booleans()) else e for e in batch)[draw(st.integers(0, len(batch))) :] for _ in range(2)]
    m, k, n = draw(st.integers(1, 9)), draw(st.integers(1, 6)), draw(st.integers(1, 40))
    return [(*some[0], m, k), (*some[1], k, n)], draw(st.booleans())


@settings(max_examples=6, deadline=None)
@given(products())
def test_random_products(case):
    shapes, packed = case
    check_product(MatMul(), sample(*shapes), AVX2, packed, scratch=False)
