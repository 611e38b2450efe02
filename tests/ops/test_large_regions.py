"""Regions of tensors of 2^31 and 2^40 elements and far more are those of small ones, moved: nothing overflows.

small   rows [middle, middle + 5) of the output  read  rows [a, b) of the input
large   rows [middle′, middle′ + 5)              read  rows [a, b) + ratio · (middle′ − middle)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from brickrt.ops.base import Op
from brickrt.ops.expr import apply, arg
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Concat, Reorder, Transpose, View
from brickrt.ops.operators.partial_moments import PartialMoments
from brickrt.ops.operators.partial_reduce import PartialReduce
from brickrt.ops.operators.pool import Pool
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise, Step
from brickrt.ops.types import Boxes, TensorType
from brickrt.plan.geometry.bricks import BrickGrid
from brickrt.plan.geometry.row_bands import with_rows

F32 = np.dtype(np.float32)
FEW = 4800  # rows of the small tensor; a multiple of all steps
ROWS = (FEW * 2**20, FEW * 2**28)  # of large ones: 2^32, 2^40
COLUMNS = 1024
PERIOD = 48  # rows of the output, at multiples of which they are alike


@dataclass(frozen=True)
class RowCase:
    """An operator on tensors of so many rows: input `i` has them along `axis`, the output along `out_axis`, of which
    one is `ratio` of the input's."""

    make: Callable[[int], tuple[Op, list[TensorType]]]
    axis: int = 2
    out_axis: int = 2
    ratio: Fraction = Fraction(1)
    i: int = 0


def kind(*shape: int) -> TensorType:
    return TensorType(shape, F32)


def image(rows: int) -> TensorType:
    return kind(1, 8, rows, COLUMNS)


def conv(stride: int, dilation: int) -> RowCase:
    pad = dilation
    op = Conv((3, 3), (stride,) * 2, (dilation,) * 2, (pad, pad), (pad, pad))
    return RowCase(lambda rows: (op, [image(rows), kind(8, 8, 3, 3)]), ratio=Fraction(stride))


def transposed(stride: int, dilation: int) -> RowCase:
    op = ConvTranspose((3, 3), (stride,) * 2, (dilation,) * 2, (1, 1), (1, 1), (stride - 1,) * 2)
    return RowCase(lambda rows: (op, [image(rows), kind(8, 8, 3, 3)]), ratio=Fraction(1, stride))


def volume(rows: int) -> tuple[Op, list[TensorType]]:
    op = Conv((3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1), (1, 1, 1))
    return op, [kind(1, 8, rows, COLUMNS, COLUMNS), kind(16, 8, 3, 3, 3)]


def softmax_like() -> Rowwise:
    return Rowwise((1,), (Step("max", arg(0, F32)),), apply("sub", arg(0, F32), arg(1, F32)))


CASES = {
    "conv": conv(1, 1),
    "conv strided": conv(2, 1),
    "conv dilated": conv(1, 12),
    "conv strided and dilated": conv(3, 4),
    "conv of a volume": RowCase(volume, ratio=Fraction(2)),
    "transposed conv": transposed(2, 1),
    "transposed conv dilated": transposed(4, 3),
    "pool": RowCase(
        lambda rows: (Pool("max", (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)), [image(rows)]), ratio=Fraction(2)
    ),
    "map": RowCase(lambda rows: (Map(apply("add", arg(0, F32), arg(1, F32))), [image(rows), kind(8, 1, 1)])),
    "map of a column": RowCase(
        lambda rows: (Map(apply("add", arg(0, F32), arg(1, F32))), [image(rows), kind(rows, 1)]), axis=0, i=1
    ),
    "norm of channels": RowCase(lambda rows: (softmax_like(), [image(rows)])),
    "sums of columns": RowCase(lambda rows: (Reduce("sum", (3,), True), [image(rows)])),
    "sums of channels": RowCase(lambda rows: (Reduce("sum", (1,), False), [image(rows)]), out_axis=1),
    "partial sums": RowCase(lambda rows: (PartialReduce(length=64, combine="sum"), [image(rows)])),
    "moments": RowCase(lambda rows: (PartialMoments(64), [image(rows)])),
    "transpose": RowCase(lambda rows: (Transpose((0, 2, 3, 1)), [image(rows)]), out_axis=1),
    "flat": RowCase(lambda rows: (View((1, 8, rows * COLUMNS)), [image(rows)]), out_axis=2, ratio=Fraction(1, COLUMNS)),
    "unfolded": RowCase(
        lambda rows: (View((1, 8, rows, COLUMNS)), [kind(1, 8, rows * COLUMNS)]), ratio=Fraction(COLUMNS)
    ),
    "windows": RowCase(
        lambda rows: (View((8, rows // 8, 8, COLUMNS // 8, 8)), [image(rows)]), out_axis=1, ratio=Fraction(8)
    ),
    "rows of a product": RowCase(lambda rows: (MatMul(), [kind(rows, 64), kind(64, 32)]), axis=0, out_axis=0),
    "channels joined": RowCase(lambda rows: (Concat(1), [image(rows), image(rows)]), i=1),
    "layout": RowCase(lambda rows: (Reorder("last"), [image(rows)])),
}


def middle_region(case: RowCase, rows: int) -> tuple[int, Boxes]:
    """The first of five rows in the middle of the output, and what they read."""
    op, ins = case.make(rows)
    out = op.infer(ins)
    first = out.shape[case.out_axis] // 2 // PERIOD * PERIOD
    if case.ratio.denominator > PERIOD:
        first -= first % case.ratio.denominator
    whole = Boxes.whole(out.shape)
    box = with_rows(whole, np.array([first]), np.array([first + 5]), case.out_axis)
    return first, op.region(case.i, box, ins, out)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", CASES)
def test_regions_of_large_tensors_are_those_of_small_ones_moved(name: str, rows: int) -> None:
    case = CASES[name]
    (near, small), (far, large) = (middle_region(case, count) for count in (FEW, rows))
    moved = case.ratio * (far - near)
    assert moved.denominator == 1 and moved > 2**27
    offset = np.zeros((1, small.rank), np.int64)
    offset[0, case.axis] = int(moved)
    np.testing.assert_array_equal(large.lo - offset, small.lo)
    np.testing.assert_array_equal(large.hi - offset, small.hi)
    assert small.volumes[0] > 0


@pytest.mark.parametrize("rows", ROWS)
def test_parts_that_are_joined_begin_where_they_should(rows: int) -> None:
    op, ins = Concat(2), [image(rows), image(3), image(rows)]
    box = Boxes.one((0, 0, rows - 1, 0), (1, 8, rows + 5, COLUMNS))
    found = [op.region(i, box, ins, op.infer(ins)) for i in range(3)]
    assert [(int(one.lo[0, 2]), int(one.hi[0, 2])) for one in found] == [(rows - 1, rows), (0, 3), (0, 2)]


@pytest.mark.parametrize("extent", [2**20, 2**31 + 5, 2**40 + 3])
def test_bricks_of_a_long_tensor_are_numbered_and_found(extent: int) -> None:
    grid = BrickGrid((1, 3, extent), (1, 3, 64))
    count = -(-extent // 64)
    assert len(grid) == count
    offsets, bricks = grid.covering(Boxes.one((0, 0, extent - 65), (1, 3, extent)))
    assert bricks.tolist() == list(range((extent - 65) // 64, count)) and offsets.tolist() == [0, len(bricks)]
    assert TensorType((1, 3, extent), F32).nbytes == 12 * extent
