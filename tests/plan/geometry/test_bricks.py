"""Brick grids against element-by-element definitions."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.ops.types import Boxes
from brickrt.plan.geometry.bricks import BrickGrid, even_edges, quotients, ramps, row_offsets


@st.composite
def grids(draw, max_rank=4):
    rank = draw(st.integers(0, max_rank))
    shape = draw(st.tuples(*[st.integers(0, 9)] * rank))
    brick = draw(st.tuples(*[st.integers(1, 5)] * rank))
    return BrickGrid(shape, brick)


@st.composite
def grids_and_boxes(draw):
    """Boxes may lie across or beyond the tensor's ends, and may be empty or inside out."""
    grid = draw(grids())
    n = draw(st.integers(0, 6))
    corners = st.lists(st.integers(-4, 13), min_size=n * grid.rank, max_size=n * grid.rank)
    lo, hi = (np.array(draw(corners), np.int64).reshape(n, grid.rank) for _ in range(2))
    return grid, Boxes(lo, hi)


def touched(grid: BrickGrid, boxes: Boxes, k: int) -> list[int]:
    inside = boxes.clip(grid.shape)
    elements = itertools.product(*[range(lo, hi) for lo, hi in zip(inside.lo[k], inside.hi[k])])
    return sorted({int(grid.index([x // e for x, e in zip(at, grid.brick)])) for at in elements})


@settings(deadline=None)
@given(grids())
def test_boxes_partition_the_tensor_in_brick_order(grid):
    owner = np.full(grid.shape, -1)
    boxes = grid.boxes()
    assert len(boxes) == len(grid)
    for k in range(len(boxes)):
        assert (owner[boxes.slices(k)] == -1).all()
        owner[boxes.slices(k)] = k
    assert (owner >= 0).all()
    assert (boxes.volumes > 0).all()
    np.testing.assert_array_equal(grid.index(boxes.lo // np.array(grid.brick, np.int64)), np.arange(len(grid)))


@settings(deadline=None)
@given(grids_and_boxes())
def test_covering_lists_the_bricks_that_share_elements(case):
    grid, boxes = case
    offsets, bricks = grid.covering(boxes)
    assert len(offsets) == len(boxes) + 1
    for k in range(len(boxes)):
        assert bricks[offsets[k] : offsets[k + 1]].tolist() == touched(grid, boxes, k)


def test_covering_with_a_halo():
    """Bricks of edge 4 over 10 elements; the box [3, 9) reaches from the first to the last.

    |0 1 2 3|4 5 6 7|8 9|
           [-----------)
    """
    offsets, bricks = BrickGrid((10,), (4,)).covering(Boxes(np.array([[3], [4], [5]]), np.array([[9], [8], [5]])))
    assert offsets.tolist() == [0, 3, 4, 4]
    assert bricks.tolist() == [0, 1, 2, 1]


def test_covering_of_many_boxes_is_vectorised():
    grid = BrickGrid((1, 16, 548 * 8, 548 * 8), (1, 16, 8, 8))
    boxes = grid.boxes()
    offsets, bricks = grid.covering(Boxes(boxes.lo - 1, boxes.hi + 1))
    assert len(grid) == 548**2
    assert len(bricks) == offsets[-1] == (3 * 548 - 2) ** 2


def test_extents_of_zero_make_no_bricks_and_rank_zero_one():
    empty = BrickGrid((2, 0, 3), (1, 4, 2))
    assert empty.grid == (2, 0, 2)
    assert len(empty) == len(empty.boxes()) == 0
    scalar = BrickGrid((), ())
    assert len(scalar) == 1
    assert scalar.covering(scalar.boxes())[1].tolist() == [0]


def test_bad_bricks_are_named():
    with pytest.raises(ValueError, match=r"brick \(4,\) and tensor shape \(8, 8\) differ in rank"):
        BrickGrid((8, 8), (4,))
    with pytest.raises(ValueError, match=r"brick \(4, 0\) has an edge below 1"):
        BrickGrid((8, 8), (4, 0))
    with pytest.raises(ValueError, match="outside the grid"):
        BrickGrid((8, 8), (4, 4)).index([2, 0])


@settings(deadline=None)
@given(st.lists(st.integers(0, 4)))
def test_ramps_and_offsets(counts):
    expected = [k for count in counts for k in range(count)]
    assert ramps(np.array(counts, np.int64)).tolist() == expected
    assert row_offsets(np.array(counts, np.int64)).tolist() == [sum(counts[:k]) for k in range(len(counts) + 1)]


def test_even_edges_are_as_many_as_the_extent_has():
    """However many pieces are asked for, as a plan from a file may."""
    assert even_edges(10, 4, 1 << 80) == even_edges(10, 4, 3) == [4, 8, 10]
    assert even_edges(0, 4, 1 << 80) == [0]


@given(st.integers(1, 3000), st.integers(1, 40), st.integers(1, 400))
def test_even_edges_are_those_of_every_number_of_pieces(extent: int, unit: int, most: int):
    units = -(-extent // unit)
    wanted = {min(extent, -(-units // pieces) * unit) for pieces in range(1, min(most, units) + 1)}
    assert even_edges(extent, unit, most) == sorted(wanted)


@given(st.integers(0, 5000), st.integers(1, 90), st.integers(1, 6000))
def test_quotients_are_each_given_once(total: int, first: int, last: int):
    assert list(quotients(total, first, last)) == sorted({total // by for by in range(first, last + 1)}, reverse=True)


def test_edges_of_endless_axes_are_some():
    edges = even_edges(2**40, 1, 2**30)
    assert edges == sorted(set(edges)) and len(edges) <= 512 and edges[-1] == 2**40 and edges[0] <= 2**11


@given(st.lists(st.tuples(st.integers(1, 4000), st.integers(1, 50)), min_size=1, max_size=3))
def test_a_sample_of_bricks_stands_for_all(axes: list[tuple[int, int]]):
    """By count, but for the last brick by volume, and all of them where they are few."""
    grid = BrickGrid(tuple(extent for extent, _ in axes), tuple(edge for _, edge in axes))
    boxes, times = grid.sample()
    assert len(boxes) == len(times) <= 32 ** len(axes) and times.sum() == pytest.approx(len(grid))
    assert (boxes.lo >= 0).all() and (boxes.hi <= np.asarray(grid.shape)).all() and (boxes.extents > 0).all()
    assert boxes.volumes @ times == pytest.approx(math.prod(grid.shape))
    if max(grid.grid) <= 32:
        np.testing.assert_array_equal(boxes.lo, grid.boxes().lo)
        np.testing.assert_array_equal(boxes.hi, grid.boxes().hi)
