"""Rows of rings move by the addresses of their pages, as a copy would move them."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.runtime.cpu import page_moves
from brickrt.runtime.cpu.memory import Pages
from brickrt.runtime.cpu.page_moves import LEAST_MOVED_BYTES, PAGE, PageMover, may_move

needs_pages = pytest.mark.skipif(sys.platform != "linux", reason="only Linux moves pages")


@needs_pages
@settings(max_examples=40, deadline=None)
@given(shift=st.integers(1, 9), count=st.integers(1, 40), more=st.integers(0, 5), turns=st.integers(1, 4))
def test_pages_come_to_lie_where_copies_would(shift: int, count: int, more: int, turns: int):
    memory = Pages((shift + count + more) * PAGE).fitting()
    pages = memory.view(np.int64).reshape(-1, PAGE // 8)
    pages[:] = np.arange(len(pages))[:, None]
    mover, expected = PageMover(), pages[:, 0].copy()
    for _ in range(turns):
        mover.shift_down(int(memory.ctypes.data), shift * PAGE, count * PAGE)
        expected[: shift + count] = np.concatenate([expected[shift : shift + count], expected[:shift]])
        assert (pages == pages[:, :1]).all()
        assert (pages[:, 0] == expected).all()


@needs_pages
def test_what_is_behind_a_plane_stays():
    memory = Pages(64 * PAGE).fitting()
    memory[:] = np.repeat(np.arange(64, dtype=np.uint8), PAGE)
    PageMover().shift_down(int(memory.ctypes.data) + 8 * PAGE, 4 * PAGE, 10 * PAGE)
    expected = [*range(8), *range(12, 22), *range(8, 12), *range(22, 64)]
    assert memory[::PAGE].tolist() == expected


def test_only_whole_pages_that_are_worth_it_move():
    assert not may_move(PAGE + 64, 4 * LEAST_MOVED_BYTES, LEAST_MOVED_BYTES)
    assert not may_move(PAGE, 4 * LEAST_MOVED_BYTES + 64, LEAST_MOVED_BYTES)
    assert not may_move(PAGE, 4 * LEAST_MOVED_BYTES, LEAST_MOVED_BYTES + 64)
    assert not may_move(PAGE, 4 * LEAST_MOVED_BYTES, PAGE)
    assert may_move(PAGE, 4 * LEAST_MOVED_BYTES, LEAST_MOVED_BYTES) == (sys.platform == "linux")


@needs_pages
def test_without_addresses_nothing_moves(monkeypatch):
    def refuses(*words, **named):
        raise OSError(12, "Cannot allocate memory")

    mover = PageMover()
    assert mover.has_room(PAGE)
    monkeypatch.setattr(page_moves.mmap, "mmap", refuses)
    assert mover.has_room(PAGE) and not mover.has_room(2 * PAGE)
