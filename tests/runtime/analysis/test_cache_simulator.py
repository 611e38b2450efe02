"""Figures of an order, against a simulation access by access; and what they say of orders."""

import time
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.ops.types import Boxes
from brickrt.plan.geometry.bricks import BrickGrid, row_offsets
from brickrt.runtime.analysis.cache_simulator import Level, Pieces, simulate
from brickrt.runtime.lowering.order import depth_first
from brickrt.runtime.lowering.space_filling import hilbert


def pieces(rows):
    return Pieces(row_offsets(np.array([len(row) for row in rows], np.int64)), np.array(list(chain(*rows)), np.int64))


@st.composite
def programs(draw):
    n_pieces = draw(st.integers(1, 7))
    rows = st.lists(st.integers(0, n_pieces - 1), max_size=4)
    n = draw(st.integers(1, 10))
    reads, writes = ([draw(rows) for _ in range(n)] for _ in range(2))
    nbytes = draw(st.lists(st.integers(0, 9), min_size=n_pieces, max_size=n_pieces))
    return draw(st.permutations(range(n))), reads, writes, nbytes, draw(st.integers(0, 30))


def step_by_step(order, reads, writes, nbytes, capacity):
    """Keeps the pieces in a list, the one used last in front: (distance and size of reads again, fetched, written)."""
    recent, unread, dirty, distances, fetched, written = [], set(), set(), [], 0, 0
    for task in order:
        for piece, is_write in [(p, False) for p in reads[task]] + [(p, True) for p in writes[task]]:
            distance = sum(nbytes[p] for p in recent[: recent.index(piece) + 1]) if piece in recent else None
            recent = [piece, *[p for p in recent if p != piece]]
            if is_write:
                unread.add(piece)
                dirty.add(piece)
                continue
            unread.discard(piece)
            if distance is not None:
                distances.append((distance, nbytes[piece]))
            if distance is None or distance > capacity:
                fetched += nbytes[piece]
                written += nbytes[piece] if piece in dirty else 0
                dirty.discard(piece)
    return distances, fetched, written + sum(nbytes[p] for p in unread)


def live_bytes(order, reads, writes, nbytes):
    """Largest sum over the steps of the pieces between first write and last access."""
    peak = 0
    for k in range(len(order)):
        before, after = order[: k + 1], order[k:]
        started = {p for t in before for p in writes[t]}
        needed = {p for t in after for p in reads[t] + writes[t]}
        peak = max(peak, sum(nbytes[p] for p in started & needed))
    return peak


@settings(deadline=None)
@given(programs())
def test_figures_equal_those_of_a_simulation_access_by_access(program):
    order, reads, writes, nbytes, capacity = program
    figures = simulate(np.array(order), pieces(reads), pieces(writes), np.array(nbytes), {"cache": capacity})
    distances, fetched, written = step_by_step(order, reads, writes, nbytes, capacity)
    assert figures.levels["cache"] == Level(capacity, fetched, written)
    reread = sum(size for _, size in distances)
    assert figures.reread == reread
    assert figures.reuse_mean == pytest.approx(sum(d * size for d, size in distances) / reread if reread else 0)
    assert figures.peak_live == live_bytes(order, reads, writes, nbytes)


def test_a_chain_of_three_tasks():
    """x -0-> a -1-> b -2-> y, all of 8 bytes: two live at a time, y is a result, a and b stay in 16 bytes."""
    reads, writes = pieces([[0], [1], [2]]), pieces([[1], [2], [3]])
    figures = simulate(np.arange(3), reads, writes, np.full(4, 8), {"fits": 16, "none": 0})
    assert figures.peak_live == 16
    assert figures.levels == {"fits": Level(16, 8, 8), "none": Level(0, 24, 24)}
    assert figures.levels["none"].moved == 48
    assert (figures.reuse_mean, figures.reread) == (8, 16)


def halo_chain(layers: int, *shape: int):
    """Layers of bricks; each task reads a brick and its neighbours in the layer below, the first those of the input.

        roots   o o o o
                |X|X|X|
                o o o o
                |X|X|X|
        input   . . . .      pieces after all tasks' own

    Returns (offsets, deps) between tasks, reads, writes, bytes of the pieces (1 KiB each).
    """
    grid = BrickGrid(shape, (1,) * len(shape))
    boxes = grid.boxes()
    offsets, near = grid.covering(Boxes(boxes.lo - 1, boxes.hi + 1))
    n, tasks = len(grid), layers * len(grid)
    counts = np.tile(np.diff(offsets), layers)
    below = np.concatenate([near + layer * n for layer in range(layers - 1)])
    reads = Pieces(row_offsets(counts), np.concatenate([near + tasks, below]))
    deps = row_offsets(np.where(np.arange(tasks) < n, 0, counts)), below
    return deps, reads, Pieces(np.arange(tasks + 1), np.arange(tasks)), np.full(tasks + n, 1024)


@pytest.mark.parametrize("shape", [(64,), (24, 24), (32, 8, 8)])
@pytest.mark.parametrize("layers", [2, 3, 4])
def test_depth_first_beats_layer_by_layer(shape, layers):
    deps, reads, writes, nbytes = halo_chain(layers, *shape)
    tasks, n = len(writes.ids), int(np.prod(shape))
    cache = {"cache": n * 1024}
    by_layer = simulate(np.arange(tasks), reads, writes, nbytes, cache)
    by_depth = simulate(depth_first(*deps, np.arange(tasks - n, tasks)), reads, writes, nbytes, cache)
    assert by_depth.peak_live < by_layer.peak_live
    assert by_depth.reuse_mean < by_layer.reuse_mean
    assert by_depth.levels["cache"].moved < by_layer.levels["cache"].moved


def test_depth_first_moves_only_input_and_output_where_its_window_fits():
    """A chain of three 3×3 layers on 24×24 bricks: the window of live rows is 3 layers × 4 rows × 24 bricks."""
    deps, reads, writes, nbytes = halo_chain(3, 24, 24)
    order = depth_first(*deps, np.arange(2 * 576, 3 * 576))
    level = simulate(order, reads, writes, nbytes, {"cache": 12 * 24 * 1024}).levels["cache"]
    assert (level.fetched, level.written) == (576 * 1024, 576 * 1024)


def test_curves_shorten_reuse():
    deps, reads, writes, nbytes = halo_chain(3, 32, 32)
    rows = np.arange(1024)
    snake = np.where(rows // 32 % 2, rows ^ 31, rows)  # every other row backwards
    mean = {
        curve: simulate(depth_first(*deps, 2048 + order), reads, writes, nbytes, {}).reuse_mean
        for curve, order in [("rows", rows), ("snake", snake), ("hilbert", hilbert((32, 32)))]
    }
    assert mean["hilbert"] < mean["snake"] < mean["rows"]


def test_nothing_to_run():
    none = pieces([])
    figures = simulate(np.array([], np.int64), none, none, np.array([]), {"cache": 8})
    assert (figures.peak_live, figures.reuse_mean, figures.levels) == (0, 0.0, {"cache": Level(8, 0, 0)})


def test_50000_tasks_take_under_a_second():
    deps, reads, writes, nbytes = halo_chain(5, 100, 100)
    order = depth_first(*deps, np.arange(40_000, 50_000))
    start = time.process_time()
    simulate(order, reads, writes, nbytes, {"L2": 1 << 20, "L3": 32 << 20})
    assert time.process_time() - start < 1
