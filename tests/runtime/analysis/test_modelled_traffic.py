"""Modelled bytes per memory level: what pieces tasks touch, and how many of them move."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickrt.ops.operators.move import Take, View
from brickrt.runtime.analysis import modelled_traffic
from brickrt.runtime.analysis.modelled_traffic import locality
from tests.support.graphs.plan_graphs import Sketch
from tests.support.task_checks import SERVER, lowered


def moved(sketch: Sketch, strategy: str, l2: int = 2**26, **options: int) -> int:
    """Bytes below a cache of `l2` bytes; the plan is that of a device with a large one."""
    large = replace(SERVER, l2=2**26, l3=0, cores=1)
    tasks = lowered(sketch.graph(), strategy, large, **options)
    tasks = replace(tasks, plan=replace(tasks.plan, device=replace(large, l2=l2)))
    return locality(tasks).levels["l2"].moved


def maps(count: int, size: int = 64) -> tuple[Sketch, int]:
    """x [1, 4, size, size] → abs → … → abs, and the bytes of one of these tensors."""
    s = Sketch()
    x = s.input(1, 4, size, size)
    for _ in range(count):
        x = s.map("abs", x)
    return s, 4 * 4 * size * size


def test_a_map_moves_its_input_and_its_output():
    s, nbytes = maps(1)
    assert moved(s, "layerwise") == 2 * nbytes


def test_what_fits_the_cache_moves_once():
    s, nbytes = maps(3)
    assert moved(s, "layerwise") == 2 * nbytes
    assert moved(s, "layerwise", l2=0) == 6 * nbytes


def test_padded_bricks_keep_intermediates_to_themselves():
    """x → 1×1 → 1×1: scratch does not count, for it stays in the worker's cache; weights go to each of 16 bricks."""
    s = Sketch()
    s.conv(s.conv(s.input(1, 16, 64, 64), 16, 1), 16, 1)
    nbytes, weights = 4 * 16 * 64 * 64, 4 * 16 * 16
    assert moved(s, "padded", l2=0, brick=16) == 2 * nbytes + 16 * 2 * weights
    assert moved(s, "memoized", l2=0, brick=16) > 5 * nbytes


def test_a_halo_is_read_again_only_where_it_does_not_stay():
    """Bricks of 8 read 9 or 10 rows and columns: no more of their neighbours than that."""
    s = Sketch()
    s.conv(s.input(1, 4, 64, 64), 4)
    nbytes, weights = 4 * 4 * 64 * 64, 4 * 4 * 4 * 9
    assert moved(s, "memoized", brick=8) == 2 * nbytes + weights
    with_halos = 4 * 4 * (2 * 9 + 6 * 10) ** 2
    assert moved(s, "memoized", l2=0, brick=8) == with_halos + nbytes + 64 * weights


def test_small_bricks_read_their_part_of_large_ones():
    """abs in slabs → conv in bricks: a brick reads rows of a slab, not all of it."""
    s = Sketch()
    s.conv(s.map("abs", s.input(1, 16, 128, 128)), 16)
    tasks = lowered(s.graph(), "layerwise")
    pieces = modelled_traffic._Pieces(tasks)
    for name, boxes, _ in (*pieces.reads, *pieces.writes):
        offsets, found = pieces.grids[name].covering(boxes)
        touched = np.add.reduceat(pieces.grids[name].volumes[found], offsets[:-1])
        np.testing.assert_array_equal(touched, boxes.volumes)


def test_views_and_parts_move_as_what_they_show():
    s = Sketch()
    x = s.map("abs", s.input(1, 32, 8, 8))
    half = s.add(Take((None, tuple(range(16)), None, None)), x)
    flat = s.add(View((1, 32, 64)), x)
    graph = s.graph(s.map("abs", half), s.map("abs", flat))
    figures = locality(lowered(graph, "layerwise", replace(SERVER, l3=0, cores=1)))
    nbytes = 4 * 32 * 64
    assert figures.levels["l2"].moved <= nbytes + nbytes + nbytes // 2 + nbytes  # in, x, and both results
    assert figures.peak_live >= nbytes


def test_levels_are_those_of_the_device():
    s, _ = maps(1)
    tasks = lowered(s.graph(), "layerwise")
    assert list(locality(tasks).levels) == ["l2", "l3"]
    assert locality(tasks).levels["l3"].capacity == SERVER.l3


def test_a_view_is_read_where_its_elements_lie():
    """abs → view → abs: each brick of the second reads its own rows, not the whole of the first."""
    s = Sketch()
    flat = s.add(View((1, 4, 4096)), s.map("abs", s.input(1, 4, 64, 64)))
    s.map("abs", flat)
    nbytes = 4 * 4 * 64 * 64
    assert moved(s, "memoized", l2=0, brick=8) < 2.5 * 4 * nbytes  # 64 rows of 8×8 make up 8 rows of 64


@pytest.mark.parametrize("strategy", ["padded", "memoized"])
def test_some_pieces_stand_for_all(strategy, monkeypatch):
    """conv → conv → abs, in 1600 bricks: a quarter of the accesses tells the same of a cache that holds many."""
    s = Sketch()
    s.map("abs", s.conv(s.conv(s.input(1, 8, 320, 320), 16), 16))
    tasks = lowered(s.graph(), strategy, replace(SERVER, l2=2**16, l3=2**22), brick=8)
    exact, pieces = locality(tasks), modelled_traffic._Pieces(tasks)
    assert list(exact.levels) == ["l2", "l3"]
    everything = np.ones(len(pieces.sizes), bool)
    total = sum(len(pieces.csr(log, everything).ids) for log in (pieces.reads, pieces.writes))
    assert (pieces.drawn(total) == 1).all()
    stands_for, sizes = pieces.drawn(total // 4), np.asarray(pieces.sizes)
    assert (stands_for * sizes).sum() == pytest.approx(sizes.sum(), rel=0.05)
    kept = sum(len(pieces.csr(log, stands_for > 0).ids) for log in (pieces.reads, pieces.writes))
    assert kept == pytest.approx(total // 4, rel=0.1)
    monkeypatch.setattr(modelled_traffic, "MOST_ACCESSES", total // 4)
    found = locality(tasks)
    assert list(found.levels) == ["l3"]  # the other holds few
    assert found.levels["l3"].moved == pytest.approx(exact.levels["l3"].moved, rel=0.1)
    assert found.reuse_mean == pytest.approx(exact.reuse_mean, rel=0.3)
