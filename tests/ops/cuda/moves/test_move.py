"""CUDA kernels that move elements, on the host."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.base import Op
from brickrt.ops.operators.move import Concat, Reorder, Transpose, View
from brickrt.ops.types import Boxes
from tests.support.cuda.cases.kernel_cases import split, values
from tests.support.cuda.host_kernels import expected, needs_compiler, run_on_host
from tests.support.cuda.host_scratch import run_in_scratch

pytestmark = needs_compiler


def check(op: Op, *arrays: np.ndarray, layouts=None, parts: int = 3, threads: int = 64) -> None:
    """Whole, and in uneven boxes."""
    want = expected(op, arrays)
    for boxes in (None, split(want.shape, parts)):
        got = run_on_host(op, arrays, layouts, boxes=boxes, threads=threads)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "shape", [(2, 8, 5, 7), (1, 3, 40, 30), (1, 70, 9, 9), (2, 130, 67), (3, 1, 4, 4), (2, 5, 1, 1)]
)
def test_reorder(shape) -> None:
    check(Reorder("plain"), values(shape), layouts=["last", "plain"])
    check(Reorder("last"), values(shape), layouts=["plain", "last"], threads=96)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float64", "bool"])
def test_reorder_of_other_types(dtype) -> None:
    x = values((2, 21, 6, 11), dtype)
    check(Reorder("plain"), x, layouts=["last", "plain"])
    check(Reorder("last"), x, layouts=["plain", "last"])


@pytest.mark.parametrize("threads", [64, 96, 256])
@pytest.mark.parametrize("shape", [(1, 64, 8, 16), (2, 32, 10, 16), (1, 8, 5, 200)])
def test_tiles_that_boxes_fill(shape, threads):
    """All of them, or all but the last; 96 threads do not divide into rows of a tile."""
    check(Reorder("plain"), values(shape), layouts=["last", "plain"], threads=threads)
    check(Reorder("last"), values(shape, "float16"), layouts=["plain", "last"], threads=threads)


@pytest.mark.parametrize("off", [0, 1])
@pytest.mark.parametrize("layouts", [["plain", "last"], ["last", "plain"], ["last", "last"]])
def test_reorder_in_scratch(layouts, off) -> None:
    x = values((2, 12, 9, 20))
    box = Boxes.one((1, 3, 2, 4), (2, 12, 6, 17))
    got = run_in_scratch(Reorder("plain"), [x], layouts, box, off)
    np.testing.assert_array_equal(got, x[box.slices()])


@pytest.mark.parametrize(
    ("shape", "perm"),
    [
        ((), ()),
        ((7,), (0,)),
        ((5, 70), (1, 0)),
        ((33, 65), (1, 0)),
        ((2, 3, 4, 8), (0, 2, 1, 3)),
        ((2, 3, 4, 8), (0, 2, 3, 1)),
        ((2, 3, 4, 8), (3, 2, 1, 0)),
        ((4, 1, 6), (2, 0, 1)),
        ((2, 3, 2, 3, 2, 4), (5, 1, 4, 0, 3, 2)),
        ((3, 0, 2), (2, 1, 0)),
    ],
)
def test_transpose(shape, perm) -> None:
    check(Transpose(perm), values(shape))


@pytest.mark.parametrize("layouts", [["last", "plain"], ["plain", "last"], ["last", "last"]])
def test_transpose_in_other_layouts(layouts) -> None:
    check(Transpose((0, 2, 1, 3)), values((2, 6, 5, 8)), layouts=layouts)
    check(Transpose((0, 1, 3, 2)), values((2, 6, 5, 8)), layouts=layouts)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((2, 6, 5), (2, 3, 2, 5)),
        ((2, 3, 4), (24,)),
        ((), (1, 1)),
        ((2, 3, 4), (6, 4)),
        ((6, 4), (3, 8)),
        ((1, 12, 4, 4), (1, 12, 16)),
        ((2, 6, 4, 5), (2, 2, 3, 20)),
        ((2, 6, 4, 5), (12, 20)),
        ((2, 3, 4, 6), (4, 3, 2, 6)),
        ((0, 3), (3, 0, 2)),
    ],
)
def test_view(before, after) -> None:
    """Channels-last inputs, too, where merged dimensions are not contiguous."""
    for layouts in (["plain", "plain"], ["last", "plain"], ["plain", "last"]):
        check(View(after), values(before), layouts=layouts, parts=2)


@pytest.mark.parametrize("layouts", [["plain"] * 4, ["last"] * 4, ["last", "plain", "last", "last"]])
@pytest.mark.parametrize(("axis", "sizes"), [(1, (8, 4, 3)), (1, (1, 0, 16)), (0, (1, 2, 1)), (3, (5, 1, 8))])
def test_concat(layouts, axis, sizes) -> None:
    shapes = [[2, 4, 3, 5] for _ in sizes]
    for shape, size in zip(shapes, sizes):
        shape[axis] = size
    check(Concat(axis), *(values(tuple(s)) + k for k, s in enumerate(shapes)), layouts=layouts)


def test_concat_in_scratch() -> None:
    x, y = values((1, 8, 6, 6)), values((1, 12, 6, 6))
    box = Boxes.one((0, 5, 1, 2), (1, 17, 5, 6))
    for off in (0, 3):
        got = run_in_scratch(Concat(1), [x, y], ["last"] * 3, box, off)
        np.testing.assert_array_equal(got, expected(Concat(1), [x, y])[box.slices()])
