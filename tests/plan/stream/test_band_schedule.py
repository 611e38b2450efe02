"""Schedules of bands, by planning alone: what each band computes, reads and holds, and which bands are alike."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from brickrt import zoo
from brickrt.graph.errors import BrickError
from brickrt.ops.operators.interp import Interp
from brickrt.ops.types import Boxes
from brickrt.plan.geometry.row_bands import with_rows
from brickrt.plan.stream.band_schedule import BandSchedule, Read, SweptRows
from brickrt.plan.stream.stream_plan import StreamPlan, Sweep
from tests.support.random_networks import random_network
from tests.support.streams import plan_of, planner_of

HEIGHTS = st.sampled_from([1, 2, 3, 5, 8, 13, 100])


def stream_of(seed: int, rows: int) -> StreamPlan:
    """A random network in bands of `rows` rows; networks that are refused are left out."""
    try:
        return planner_of(plan_of(random_network(random.Random(seed)))).stream_plan(rows)
    except BrickError:
        assume(False)
        raise


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 2**20), HEIGHTS)
def test_every_row_is_computed_once(seed: int, rows: int) -> None:
    stream = stream_of(seed, rows)
    for sweep in stream.sweeps:
        schedule = sweep.schedule
        for name, one in schedule.rows.items():
            assert (one.keep <= one.lo).all() and (one.lo <= one.hi).all(), name
            if not known(one):
                np.testing.assert_array_equal(one.lo[1:], one.hi[:-1], name)
        for name in schedule.targets:
            one, extent = schedule.rows[name], schedule.graph.types[name].shape[schedule.axis]
            assert (int(one.lo[0]), int(one.hi[-1])) == (0, extent), name


def known(rows: SweptRows) -> bool:
    """Whether a tensor is whole from a pass before."""
    return bool((rows.lo == rows.hi).all() and (rows.keep == rows.lo).all())


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 2**20), HEIGHTS)
def test_rows_that_a_band_reads_are_held(seed: int, rows: int) -> None:
    for sweep in stream_of(seed, rows).sweeps:
        for read in sweep.schedule.reads:
            check_held(sweep.schedule, read)


def check_held(schedule: BandSchedule, read: Read) -> None:
    """What the operator itself says of all rows that a band computes lies in what the band holds."""
    node, axis = schedule.graph.nodes[read.k], schedule.axis
    name = node.inputs[read.i]
    region = node.op.region(read.i, read.boxes, schedule.graph.ins(node), schedule.graph.out(node))
    some = region.volumes > 0
    if name not in schedule.rows:
        return
    rows = schedule.rows[name]
    assert (region.lo[some, axis] >= rows.keep[some]).all(), (node.name, name)
    if not known(rows):
        assert (region.hi[some, axis] <= rows.hi[some]).all(), (node.name, name)
        across, others = schedule.across[name], [k for k in range(region.rank) if k != axis]
        assert (region.lo[some][:, others] >= across.lo[:, others]).all(), (node.name, name)
        assert (region.hi[some][:, others] <= across.hi[:, others]).all(), (node.name, name)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 2**20), st.sampled_from([1, 2, 3, 5]))
def test_equal_bands_are_shifts(seed: int, rows: int) -> None:
    for sweep in stream_of(seed, rows).sweeps:
        for band in np.flatnonzero(sweep.like != np.arange(sweep.schedule.bands)):
            check_shift(sweep, int(band))


def check_shift(sweep: Sweep, band: int) -> None:
    """A band's stored rows and what every row of every node reads, counted from where the band begins in each tensor,
    are those of the band that it is like."""
    schedule, like = sweep.schedule, int(sweep.like[band])
    for name, rows in schedule.rows.items():
        ends = [
            (r.hi[b] - r.lo[b], r.lo[b] - r.keep[b], r.hi[b] - r.kept_after[b]) for r in [rows] for b in (band, like)
        ]
        assert ends[0] == ends[1], name
    first = {name: rows.lo for name, rows in schedule.rows.items()}
    for read in schedule.reads:
        first.setdefault(schedule.graph.nodes[read.k].output, read.boxes.lo[:, schedule.axis])
    for read in schedule.reads:
        mine, other = (seen_from(schedule, read, first, b) for b in (band, like))
        assert len(mine) == len(other), schedule.graph.nodes[read.k].name
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_array_equal(a, b, schedule.graph.nodes[read.k].name)


def seen_from(schedule: BandSchedule, read: Read, first: Mapping[str, np.ndarray], band: int) -> list[np.ndarray]:
    """Output rows of a band, and the region that each reads, counted from the band's beginnings; weights of a Resize."""
    graph, axis = schedule.graph, schedule.axis
    node, box = graph.nodes[read.k], read.boxes.take(np.array([band]))
    if not box.volumes[0]:
        return []
    name, out = node.inputs[read.i], graph.out(node)
    rows = np.arange(box.lo[0, axis], box.hi[0, axis])
    each = Boxes(np.repeat(box.lo, len(rows), axis=0), np.repeat(box.hi, len(rows), axis=0))
    region = node.op.region(read.i, with_rows(each, rows, rows + 1, axis), graph.ins(node), out)
    origin = np.zeros((1, region.rank), np.int64)
    if name in first and region.rank > axis:
        origin[0, axis] = first[name][band]
    idle = (region.volumes == 0)[:, None]
    found = [rows - first[node.output][band], *(np.where(idle, -1, e - origin) for e in (region.lo, region.hi))]
    if isinstance(node.op, Interp) and (taps := node.op.taps[axis]) is not None:
        found += [taps.weight_array[rows], taps.index_array[rows] - origin[0, axis]]
    return found


# ---- networks of many rows


@pytest.mark.parametrize("name", ["unet", "nafnet"])
def test_no_band_computes_much_more_than_its_share(name: str) -> None:
    stream = planner_of(plan_of(zoo.build(name, size=(8192, 512)))).stream_plan(64)
    for sweep in stream.sweeps:
        schedule = sweep.schedule
        for tensor, rows in schedule.rows.items():
            extent = schedule.graph.types[tensor].shape[schedule.axis]
            assert rows.fresh <= 64 * extent // 8192 + 2 or tensor in stream.always, tensor


@pytest.mark.parametrize("name", ["unet", "resnet50", "mobilenetv2"])
def test_nothing_grows_with_the_rows(name: str) -> None:
    """Storage and distinct bands of images that are eight times as tall are the same."""
    short, tall = (planner_of(plan_of(zoo.build(name, size=(rows, 256)))).stream_plan(64) for rows in (2048, 16384))
    for a, b in zip(short.sweeps, tall.sweeps, strict=True):
        rings = [one.storage.persistent for one in (a, b)]
        always = [set(one.always) for one in (short, tall)]
        assert {n: v for n, v in rings[0].items() if n not in always[0]} == {
            n: v for n, v in rings[1].items() if n not in always[1]
        }
        assert len(np.unique(a.like)) == len(np.unique(b.like)) < a.schedule.bands
        assert {n: r.window for n, r in a.schedule.rows.items() if n not in always[0]} == {
            n: r.window for n, r in b.schedule.rows.items() if n not in always[1]
        }
