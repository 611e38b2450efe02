"""Take and Interp as CUDA kernels, on the host."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.affine_tables import Affine, affine
from brickrt.ops.base import Op
from brickrt.ops.operators.move import Take
from brickrt.ops.operators.sampling.interp import AxisTaps, Interp
from brickrt.ops.types import Boxes
from tests.support.cuda.cases.kernel_cases import split, taps, values
from tests.support.cuda.host_kernels import expected, needs_compiler, run_on_host
from tests.support.cuda.host_scratch import run_in_scratch

pytestmark = needs_compiler
LAYOUTS = [["plain", "plain"], ["last", "last"], ["plain", "last"]]


def check(op: Op, x: np.ndarray, layouts=None, parts: int = 2, rtol: float = 0) -> None:
    want = expected(op, [x])
    for boxes in (None, split(want.shape, parts)):
        got = run_on_host(op, [x], layouts, boxes=boxes)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


@pytest.mark.parametrize(
    ("table", "found"),
    [
        (None, Affine(0, 1, 0, 4)),
        ([2, 3, 4, 5], Affine(2, 1, 0, 4)),
        ([-1, 0, 1, -1], Affine(-1, 1, 1, 3)),
        ([6, 4, 2, 0], Affine(6, -2, 0, 4)),
        ([0, 0, 0, 0], Affine(0, 0, 0, 4)),
        ([-1, -1, 3, -1], Affine(1, 1, 2, 3)),
        ([-1, -1, -1, -1], Affine(0, 1, 0, 0)),
        ([0, -1, 2, 3], None),
        ([0, 0, 1, 1], None),
    ],
)
def test_arithmetic_of_tables(table, found) -> None:
    assert affine(table, 4) == found


@pytest.mark.parametrize("layouts", LAYOUTS)
@pytest.mark.parametrize(
    "tables",
    [
        (None, None, (-1, 0, 1, 2, 3, 4, -1), (-1, -1, 0, 1, 2, 3, 4, 5, 6, -1)),
        (None, None, (1, 0, 1, 2, 3, 4, 3), (0, 0, 1, 1, 2, 2, 3, 3)),
        ((1,), (4, 5, 6, 7), (4, 2, 0), (6, 5, 4, 3, 2, 1, 0)),
        (None, (1, 2, 3), None, (3, -1, 0, 0)),
        ((0, 0, 1), (7, -1, 2, 5, 0), (0, 0, 0, 0), None),
        ((-1, -1), None, None, None),
        ((-1,), (0,), None, None),
        (None, None, (), None),
    ],
)
def test_take(tables, layouts) -> None:
    """Pads, mirrors, repeats, slices, gathers and nothing at all, on [2, 8, 5, 7]."""
    check(Take(tables, 3), values((2, 8, 5, 7)), layouts)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "int64"])
def test_take_of_other_types(dtype) -> None:
    check(Take((None, (-1, 0, 1, 2, -1)), 1), values((4, 3), dtype))


def test_take_that_expands_one_element() -> None:
    check(Take(((0,) * 5, None, (0,) * 9)), values((1, 3, 1)))
    check(Take(()), values(()))


@pytest.mark.parametrize("layouts", LAYOUTS)
@pytest.mark.parametrize("off", [0, 1])
def test_take_in_scratch(layouts, off) -> None:
    op = Take((None, None, (-1, *range(12), -1), (0, 0, 1, 1, 2, 2, 3, 3)))
    x = values((2, 12, 12, 9))
    box = Boxes.one((1, 4, 0, 3), (2, 12, 5, 8))
    got = run_in_scratch(op, [x], layouts, box, off)
    np.testing.assert_array_equal(got, expected(op, [x])[box.slices()])


@pytest.mark.parametrize("layouts", LAYOUTS)
@pytest.mark.parametrize("counts", [(None, 2, 2), (None, 4, None), (3, None, None), (None, None, 9), (2, 3, 2)])
def test_interp(counts, layouts) -> None:
    """[2, 8, 5, 7] to twice the extents."""
    axes = [None if n is None else taps(2 * e, n, e) for n, e in zip(counts, (8, 5, 7))]
    check(Interp((None, *axes)), values((2, 8, 5, 7)), layouts, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "rtol"), [("uint8", 0), ("int32", 0), ("float64", 1e-14), ("float16", 1e-2)])
def test_interp_of_other_types(dtype, rtol) -> None:
    x = np.abs(values((1, 4, 6, 5))).astype(dtype)
    half = AxisTaps(tuple((i // 2, min(i // 2 + 1, 5)) for i in range(12)), ((0.75, 0.25), (0.25, 0.75)) * 6)
    for layouts in (["plain", "plain"], ["last", "last"]):
        check(Interp((None, None, half, None)), x, layouts, rtol=rtol)


def test_interp_in_scratch() -> None:
    op = Interp((None, None, taps(12, 2, 6), taps(9, 3, 7)))
    x = values((2, 8, 6, 7))
    box = Boxes.one((1, 2, 3, 1), (2, 8, 9, 8))
    for layouts in LAYOUTS[:2]:
        got = run_in_scratch(op, [x], layouts, box, 1)
        np.testing.assert_allclose(got, expected(op, [x])[box.slices()], rtol=1e-5, atol=1e-5)
