"""Tensors cut where boxes begin and end."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from brickrt.ops.types import Boxes
from brickrt.runtime.analysis import cut_grid
from brickrt.runtime.analysis.cut_grid import CutGrid

SHAPE = (7, 1, 12)


@st.composite
def boxes(draw: st.DrawFn) -> Boxes:
    """Up to six boxes inside the shape, some of them empty."""
    ends = [[sorted(draw(st.tuples(*[st.integers(0, e)] * 2))) for e in SHAPE] for _ in range(draw(st.integers(1, 6)))]
    found = np.array(ends, np.int64)
    return Boxes(found[:, :, 0], found[:, :, 1])


@given(boxes())
def test_pieces_of_a_box_are_its_elements(some):
    grid = CutGrid.of(SHAPE, [some])
    assert grid.volumes.sum() == np.prod(SHAPE) and len(grid) == len(grid.volumes)
    offsets, pieces = grid.covering(some)
    np.testing.assert_array_equal(np.diff(offsets), grid.touched(some))
    owner = np.repeat(np.arange(len(some)), np.diff(offsets))
    inside = np.where((some.hi > some.lo).all(axis=1), some.volumes, 0)
    np.testing.assert_array_equal(np.bincount(owner, grid.volumes[pieces], minlength=len(some)), inside)


def test_too_many_places_are_thinned(monkeypatch):
    monkeypatch.setattr(cut_grid, "MOST_PIECES", 20)
    lo = np.stack([np.zeros(12, np.int64), np.arange(12)], axis=1)
    some = Boxes(lo, lo + np.array([5, 1]))
    grid = CutGrid.of((10, 12), [some])
    assert len(grid) <= 20 and grid.volumes.sum() == 120
    assert all(cut[0] == 0 and cut[-1] == extent for cut, extent in zip(grid.cuts, (10, 12)))
    assert (grid.touched(some) >= 1).all()


def test_a_tensor_of_no_elements_has_no_pieces():
    grid = CutGrid.of((0, 3), [Boxes.whole((0, 3), 2)])
    assert len(grid) == 0 and grid.touched(Boxes.whole((0, 3), 2)).tolist() == [0, 0]
    assert len(CutGrid.of((), [Boxes.whole((), 1)])) == 1
