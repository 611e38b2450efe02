"""Elementwise CUDA kernels, on the host."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.expr import Expr, apply, arg, cast, const
from brickrt.ops.operators.map import Map
from brickrt.ops.types import Boxes
from tests.support.cuda.cases.kernel_cases import SUM, split, values
from tests.support.cuda.host_kernels import expected, needs_compiler, run_on_host
from tests.support.cuda.host_scratch import run_in_scratch

pytestmark = needs_compiler


def check(expr: Expr, *arrays: np.ndarray, layouts=None, constant=None, boxes=None, threads: int = 64) -> None:
    got = run_on_host(Map(expr), arrays, layouts, constant, boxes, threads=threads)
    np.testing.assert_allclose(got, expected(Map(expr), arrays), rtol=1e-6)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((), ()),
        ((1,), ()),
        ((37,), (1,)),
        ((3, 5), (5,)),
        ((2, 8, 5, 7), (8, 1, 1)),
        ((2, 8, 5, 7), (2, 8, 5, 7)),
        ((2, 8, 5, 7), (1, 8, 1, 7)),
        ((1, 3, 4, 4), (3, 1, 4)),
        ((2, 1, 3, 1, 4), (1, 6, 1, 2, 1)),
        ((2, 1, 2, 3, 1, 2, 2, 4), (3, 1, 1, 2, 1)),
        ((0, 4), (4,)),
        ((3, 0, 4), (1,)),
    ],
)
def test_broadcasting_in_all_layouts(a, b) -> None:
    x, y = values(a), values(b)
    shape = np.broadcast_shapes(a, b)
    for layouts in [["plain"] * 3, ["last"] * 3, ["last", "plain", "plain"]]:
        check(SUM, x, y, layouts=layouts)
        check(SUM, x, y, layouts=layouts, boxes=split(shape, 3), threads=96)


@pytest.mark.parametrize("layout", ["plain", "last"])
def test_constant_operands(layout) -> None:
    for shape in [(6, 1, 1), (1, 6, 4, 3), (4, 3), ()]:
        check(SUM, values((2, 6, 4, 3)), values(shape), layouts=[layout, "plain", layout], constant=[False, True])


def test_boxes_of_any_kind() -> None:
    """Uneven cuts of a tensor, so that vectors begin and end within rows; nothing outside of a box is written."""
    x, y = values((3, 12, 5, 9)), values((12, 1, 1))
    for layout in ("plain", "last"):
        for parts in (2, 4, 20):
            check(SUM, x, y, layouts=[layout, "plain", layout], boxes=split(x.shape, parts))
    only = Boxes.one((1, 3, 2, 1), (2, 10, 4, 8))
    got = run_on_host(Map(SUM), [x, y], boxes=only)
    inside = np.zeros(x.shape, bool)
    inside[only.slices()] = True
    np.testing.assert_array_equal(got[~inside], 77)
    np.testing.assert_allclose(got[inside], expected(Map(SUM), [x, y])[inside], rtol=1e-6)


def test_empty_boxes() -> None:
    x, y = values((4, 1, 6)), values((6,))
    boxes = Boxes(np.array([[0, 0, 2], [3, 1, 0], [2, 0, 6]]), np.array([[4, 1, 2], [4, 1, 6], [1, 1, 6]]))
    got = run_on_host(Map(SUM), [x, y], boxes=boxes)
    np.testing.assert_array_equal(got, np.full(x.shape, 77, np.float32))


@pytest.mark.parametrize("layouts", [["plain"] * 3, ["last", "plain", "last"]])
@pytest.mark.parametrize("off", [0, 1, 2])
def test_scratch_and_misaligned_operands(layouts, off) -> None:
    """Virtual origins before the memory, rows at addresses that forbid vector loads."""
    for channels in (8, 12, 5):
        x, y = values((2, channels, 7, 11)), values((1, channels, 1, 11))
        box = Boxes.one((1, 0, 2, 3), (2, channels, 6, 11))
        got = run_in_scratch(Map(SUM), [x, y], layouts, box, off)
        np.testing.assert_allclose(got, expected(Map(SUM), [x, y])[box.slices()], rtol=1e-6)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("float32", "float16"),
        ("float16", "float64"),
        ("int8", "int64"),
        ("float32", "bool"),
        ("bool", "float32"),
        ("uint8", "float32"),
        ("int64", "int32"),
    ],
)
def test_operands_of_different_sizes(source, target) -> None:
    for shape in ((2, 16, 3, 3), (5, 7)):
        x = values(shape, source)
        check(cast(arg(0, source), target), x, layouts=["last", "last"], boxes=split(shape, 2))


def test_operands_that_are_not_used() -> None:
    """Only operand 1 matters, and nothing at all."""
    x, y = values((4, 8)), values((8,))
    check(apply("neg", arg(1, "float32")), x, y)
    check(const(3, "float32"), x, y)


def test_wide_tensors_of_few_boxes() -> None:
    """More items than threads, many of them under way."""
    x, y = values((3, 999)), values((3, 1))
    check(SUM, x, y, threads=32)
    check(apply("tanh", apply("mul", arg(0, "float32"), arg(1, "float32"))), x, y, threads=64)
