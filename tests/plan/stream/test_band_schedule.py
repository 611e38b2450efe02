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
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.ops.operators.sampling.interp import Interp
from brickrt.ops.types import Boxes
from brickrt.plan.geometry.row_bands import with_rows
from brickrt.plan.stream.band_schedule import BandSchedule, Read
from brickrt.plan.stream.band_storage import ring_starts
from brickrt.plan.stream.rows.swept_rows import SweptRows
from brickrt.plan.stream.stream_plan import StreamPlan, Sweep
from tests.support.cpu.streams import plan_of, planner_of
from tests.support.graphs.onnx_models import model as proto
from tests.support.graphs.onnx_models import node, tensor
from tests.support.random_networks import random_network
from tests.support.zoo_networks import slim_model

HEIGHTS = st.sampled_from([1, 2, 3, 5, 1, 2, 3, 5, 8, 13, 100])  # many are low: bands of few rows are alike


def stream_of(seed: int, rows: int) -> StreamPlan:
    """A random network in bands of `rows` rows; networks that are refused are left out."""
    try:
        return planner_of(plan_of(random_network(random.Random(seed)))).stream_plan(rows)
    except BrickError:
        assume(False)
        raise


@settings(max_examples=110, deadline=None, derandomize=True)
@given(st.integers(0, 2**20), HEIGHTS)
def test_bands_of_random_networks(seed: int, rows: int) -> None:
    """Every row is computed once, what a band reads is held, and equal bands are shifts of each other."""
    for sweep in stream_of(seed, rows).sweeps:
        check_once(sweep.schedule)
        for read in sweep.schedule.reads:
            check_held(sweep.schedule, read)
        for band in np.flatnonzero(sweep.like != np.arange(sweep.schedule.bands)):
            check_shift(sweep, int(band))


def check_once(schedule: BandSchedule) -> None:
    """Each band's rows begin where those of the band before end, from the first row of an output to its last."""
    for name, one in schedule.rows.items():
        assert (one.keep <= one.lo).all() and (one.lo <= one.hi).all(), name
        if not known(one):
            np.testing.assert_array_equal(one.lo[1:], one.hi[:-1], name)
    for name in schedule.targets:
        one, extent = schedule.rows[name], schedule.graph.types[name].shape[schedule.axes.of(name)]
        assert (int(one.lo[0]), int(one.hi[-1])) == (0, extent), name


def known(rows: SweptRows) -> bool:
    """Whether a tensor is whole from a pass before."""
    return bool((rows.lo == rows.hi).all() and (rows.keep == rows.lo).all())


def check_held(schedule: BandSchedule, read: Read) -> None:
    """What the operator itself says of all rows that a band computes lies in what the band holds."""
    node = schedule.graph.nodes[read.k]
    name = node.inputs[read.i]
    axis = schedule.axes.of(name)
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
        output = schedule.graph.nodes[read.k].output
        first.setdefault(output, read.boxes.lo[:, schedule.axes.of(output)])
    for read in (read for read in schedule.reads if read.k not in schedule.chained):  # there rows are another axis
        mine, other = (seen_from(schedule, read, first, b) for b in (band, like))
        assert len(mine) == len(other), schedule.graph.nodes[read.k].name
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_array_equal(a, b, schedule.graph.nodes[read.k].name)


def seen_from(schedule: BandSchedule, read: Read, first: Mapping[str, np.ndarray], band: int) -> list[np.ndarray]:
    """Output rows of a band, and the region that each reads, from where the band begins; a Resize has weights."""
    graph, node = schedule.graph, schedule.graph.nodes[read.k]
    axis, of_output = (schedule.axes.of(name) for name in (node.inputs[read.i], node.output))
    box = read.boxes.take(np.array([band]))
    if not box.volumes[0]:
        return []
    name, out = node.inputs[read.i], graph.out(node)
    rows = np.arange(box.lo[0, of_output], box.hi[0, of_output])
    each = Boxes(np.repeat(box.lo, len(rows), axis=0), np.repeat(box.hi, len(rows), axis=0))
    region = node.op.region(read.i, with_rows(each, rows, rows + 1, of_output), graph.ins(node), out)
    origin = np.zeros((1, region.rank), np.int64)
    if name in first and region.rank > axis:
        origin[0, axis] = first[name][band]
    idle = (region.volumes == 0)[:, None]
    found = [rows - first[node.output][band], *(np.where(idle, -1, e - origin) for e in (region.lo, region.hi))]
    if isinstance(node.op, Rowwise) and region.rank > axis:  # where a row lies in what it reads all of
        found.append(rows - origin[0, axis])
    if isinstance(node.op, Interp) and (taps := node.op.taps[of_output]) is not None:
        found += [taps.weight_array[rows], taps.index_array[rows] - origin[0, axis]]
    return found


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 2**20), st.sampled_from([1, 3, 8]))
def test_schedules_do_not_depend_on_those_made_before(seed: int, rows: int) -> None:
    """Workers of a cluster plan alone, and must find the same bands: however many were taken to run ahead."""
    fresh, other = stream_of(seed, rows), planner_of(plan_of(random_network(random.Random(seed))))
    for before in (1, 2, 13):
        other.stream_plan(before)
    for a, b in zip(fresh.sweeps, other.stream_plan(rows).sweeps, strict=True):
        assert (a.schedule.bands, a.schedule.ahead) == (b.schedule.bands, b.schedule.ahead)
        assert a.storage.persistent == b.storage.persistent
        for name, one in a.schedule.rows.items():
            for ends, others in zip(*((r.keep, r.lo, r.hi) for r in (one, b.schedule.rows[name])), strict=True):
                np.testing.assert_array_equal(ends, others, name)
        assert any(one.lo[0] < one.hi[0] for one in a.schedule.rows.values()) or not a.schedule.ahead


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=60), st.integers(0, 20))
def test_rings_move_when_they_are_full(steps: list[tuple[int, int]], more: int) -> None:
    """Each band finds its rows in the ring, which begins elsewhere only where it had no room for them."""
    keep = np.cumsum([a for a, _ in steps])
    hi = np.maximum.accumulate(keep + [b for _, b in steps])
    rows = int((hi - keep).max()) + more
    starts = ring_starts(keep, hi, rows)
    assert starts[0] == keep[0] and (starts <= keep).all() and (hi - starts <= rows).all()
    for band in range(1, len(keep)):
        moved = hi[band] - starts[band - 1] > rows
        assert starts[band] == (keep[band] if moved else starts[band - 1])


# ---- networks of many rows


@pytest.mark.parametrize("network", ["unet", "nafnet"])
def test_no_band_computes_much_more_than_its_share(network: str) -> None:
    stream = planner_of(plan_of(zoo.build(network, size=(8192, 512)))).stream_plan(64)
    for sweep in stream.sweeps:
        schedule = sweep.schedule
        for name, rows in schedule.rows.items():
            extent = schedule.graph.types[name].shape[schedule.axes.of(name)]
            assert rows.fresh <= 64 * extent // 8192 + 2 or name in stream.whole.sizes, name


def test_nothing_grows_with_the_rows() -> None:
    """Storage and distinct bands of an image of 8192 × 131072 are those of 8192²."""
    low, tall = (planner_of(plan_of(zoo.build("unet", size=(rows, 8192)))).stream_plan(64) for rows in (8192, 131072))
    (a,), (b,) = low.sweeps, tall.sweeps
    assert a.storage.persistent == b.storage.persistent
    assert {n: r.window for n, r in a.schedule.rows.items()} == {n: r.window for n, r in b.schedule.rows.items()}
    assert len(np.unique(a.like)) == len(np.unique(b.like)) < 10


@pytest.mark.parametrize("name", ["resnet50", "nafnet"])
def test_only_sums_of_rows_grow_with_the_rows(name: str) -> None:
    """Global pools keep a number per row and channel. Layers may be merged otherwise, in a taller image."""
    low, tall = (planner_of(plan_of(slim_model(name, size=(rows, 512)))).stream_plan(64) for rows in (4096, 16384))
    for a, b in zip(low.sweeps, tall.sweeps, strict=True):
        assert rows_between_bands(tall, b) < 1.05 * rows_between_bands(low, a)
        assert len(np.unique(a.like)) == len(np.unique(b.like))
    graph = tall.plan.graph
    for held, nbytes in tall.whole.sizes.items():
        kind = graph.types[held]
        assert nbytes <= 2**19 or (kind.rank == 4 and kind.shape[3] <= 512 // 64), held


def rows_between_bands(stream: StreamPlan, sweep: Sweep) -> int:
    """Bytes of rings and saved rows."""
    return sum(nbytes for name, nbytes in sweep.storage.persistent.items() if name not in stream.whole.sizes)


def test_a_pixel_that_is_spread_over_the_image_is_swept() -> None:
    """As DeepCAM's fifth branch: of a resident pixel a band makes its rows."""
    stream = planner_of(plan_of(slim_model("deepcam", size=(4096, 512)))).stream_plan(64)
    spread = [name for name in stream.swept.level if "tile" in name]
    assert spread and not set(spread) & set(stream.whole.sizes)


# ---- what is refused


def test_another_shape_of_rows_is_refused() -> None:
    nodes = [node("Conv", "x w", "c", name="first"), node("Reshape", "c shape", "y", name="fold")]
    shape = np.array([1, 1024, 4096, 32])
    model = proto(nodes, [tensor("x", [1, 3, 2048, 1024])], w=np.zeros((64, 3, 1, 1), np.float32), shape=shape)
    with pytest.raises(BrickError, match=r"^node 'fold' \(View\) needs all of 'c→plain' .* band by band$"):
        planner_of(plan_of(model))


def test_rows_that_are_too_large_to_be_needed_at_once_are_refused() -> None:
    means = [node("ReduceMean", "x two", "m"), node("Sub", "x m", "c"), node("Mul", "c c", "q")]
    nodes = [*means, node("ReduceMean", "q two", "v", name="columns"), node("Add", "x v", "y")]
    model = proto(nodes, [tensor("x", [1, 64, 2048, 1024])], opset=18, two=np.array([2]))
    with pytest.raises(
        BrickError, match=r"^node .*'columns' .* needs all of 'x' .*\[1,64,2048,1024\], 0\.50 GiB, at once: .*$"
    ):
        planner_of(plan_of(model))
