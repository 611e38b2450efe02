"""Bands and strips are chosen within a limit, or refused with the least that would do, without lowering anything."""

import re
from itertools import pairwise, product

import numpy as np
import pytest

from brickrt import zoo
from brickrt.graph.errors import BrickError
from brickrt.plan.stream import stream_plan
from brickrt.plan.stream.band_schedule import schedule_pass
from brickrt.plan.stream.band_storage import LARGE_SAVED_SHARE, SMALL_SAVED_SHARE, common_extents
from brickrt.plan.stream.choose_bands import (
    HEIGHTS,
    SAMPLING_BYTES,
    SHORT_ROW,
    Candidate,
    MemoryLimit,
    TooLittleMemory,
    _strips,
    choose_bands,
)
from brickrt.plan.stream.stream_memory import LEAST_HELD, MANY_TABLES, MOST_HELD, project_stream
from brickrt.plan.stream.stream_plan import StreamPlanner
from brickrt.plan.stream.strip_parts import strip_edges, strip_extents, strip_parts
from brickrt.runtime.lowering.inplace_slices import find_inplace_slices
from tests.support.cpu.streams import plan_of, planner_of
from tests.support.graphs.onnx_models import model, node, tensor

MIB = 2**20
RUNTIME = 180 * MIB


def planner(name: str, size: int | tuple[int, ...]) -> StreamPlanner:
    return planner_of(plan_of(zoo.build(name, size=size)))


def chosen(planner: StreamPlanner, mib: int) -> Candidate:
    return choose_bands(planner, find_inplace_slices(planner.plan), MemoryLimit(mib * MIB, 2, RUNTIME))


def test_less_memory_takes_shorter_bands_or_strips_and_never_less_time():
    unet = planner("unet", 2048)
    found = [chosen(unet, mib) for mib in (2048, 900, 700, 620, 580)]
    assert [one.memory.total <= mib * MIB for one, mib in zip(found, (2048, 900, 700, 620, 580), strict=True)] == [
        True
    ] * 5
    assert found[0].plan.strips == (1,) and found[0].plan.rows == HEIGHTS[0]
    assert [one.us for one in found] == sorted(one.us for one in found)
    assert all(a.memory.total >= b.memory.total for a, b in pairwise(found))


@pytest.mark.parametrize(("name", "size"), [("unet", 1024), ("nafnet", 1024), ("unet3d", 128)])
def test_what_is_refused_names_the_least_that_is_then_enough(name: str, size: int):
    network = planner(name, size)
    with pytest.raises(
        BrickError, match=r"^300 MiB of memory are not enough: .* raise --max-memory to \d+MiB$"
    ) as refused:
        chosen(network, 300)
    least = int(re.findall(r"to (\d+)MiB", str(refused.value))[0])
    assert chosen(network, least).memory.total <= least * MIB
    with pytest.raises(BrickError):
        chosen(network, least - 24)


def test_bands_of_a_signal_have_many_samples():
    """A row of it has one: in bands of 256 it would take a hundred times as long as whole."""
    layer, weights = node("Conv", "x w", "y", pads=[1, 1]), np.ones((4, 1, 3), np.float32)
    signal = planner_of(plan_of(model([layer], [tensor("x", (1, 1, 2**20))], w=weights)))
    assert chosen(signal, 600).plan.rows == HEIGHTS[0] * SHORT_ROW
    assert chosen(planner("unet", (4096, 128)), 900).plan.rows == HEIGHTS[0] * (SHORT_ROW // 128)


def test_writers_hold_the_rows_of_a_band():
    unet = planner("unet", 1024)
    tall = MemoryLimit(900 * MIB, 2, RUNTIME, 0, 2**20)
    one = choose_bands(unet, find_inplace_slices(unet.plan), tall)
    assert one.memory.buffers == one.plan.rows * 2**20 and one.memory.total <= tall.limit
    least = MemoryLimit(600 * MIB, 2, RUNTIME, 0, 2**20)
    assert choose_bands(unet, find_inplace_slices(unet.plan), least).plan.rows < one.plan.rows


def test_means_of_columns_alone_are_planned_or_refused_with_the_least():
    means = model([node("ReduceMean", "x", "y", axes=[2])], [tensor("x", (1, 3, 260, 340))])
    columns = planner_of(plan_of(means))
    with pytest.raises(BrickError, match=r"200 MiB of memory are not enough: the least that would do is \d+ MiB"):
        chosen(columns, 200)
    assert chosen(columns, 500).memory.total <= 500 * MIB


def test_memory_does_not_grow_with_height():
    tall, taller = (chosen(planner("unet", size), 900) for size in ((8192, 1024), (65536, 1024)))
    assert (tall.plan.rows, tall.plan.strips) == (taller.plan.rows, taller.plan.strips)
    assert abs(tall.memory.total - taller.memory.total) < MIB


@pytest.mark.parametrize("strips", [(2, 3), (1, 4), (5, 1)])
def test_strips_cover_every_element_once(strips: tuple[int, ...]):
    volume = planner("unet3d", 96)
    count = np.zeros(volume.plan.graph.types["y"].shape, np.int8)
    for one in volume.stream_plan(16, strips).sweeps:
        for band in range(one.schedule.bands):
            count[one.schedule.box("y", band).slices()] += 1
    assert (count == 1).all()


@pytest.mark.parametrize(("name", "size", "mib"), [("unet", 1024, 620), ("nafnet", 1024, 700), ("unet3d", 128, 800)])
def test_what_is_told_of_a_plan_is_what_runs(name: str, size: int, mib: int):
    """Planned to be told, a sample of the bands is looked at; to run, all of them."""
    network, slices = planner(name, size), ()
    asked = MemoryLimit(mib * MIB, 2, RUNTIME)
    told, runs = (choose_bands(network, slices, asked, whole) for whole in (False, True))
    assert (told.plan.rows, told.plan.strips, told.plan.saved) == (runs.plan.rows, runs.plan.strips, runs.plan.saved)
    assert told.memory.total == pytest.approx(runs.memory.total, abs=MIB)
    bands = [sum(one.times * one.all_bands for one in found.plan.sweeps) for found in (told, runs)]
    assert bands[0] == bands[1] == sum(one.schedule.bands for one in runs.plan.sweeps)


def test_tables_that_are_many_are_those_of_few_bands(monkeypatch: pytest.MonkeyPatch):
    """Many of the shortest bands run ahead, layer after layer, and each of them has tables, which are made as bands
    come: so the shortest take least, to the MiB that is told."""
    monkeypatch.setattr("brickrt.plan.stream.stream_memory.RECORD_BYTES", 2**15)
    names = ["x", *(f"t{k}" for k in range(23)), "y"]
    layers = [node("Conv", f"{a} w", b, pads=[1, 1, 1, 1]) for a, b in pairwise(names)]
    weights = np.ones((8, 8, 3, 3), np.float32)
    network = planner_of(plan_of(model(layers, [tensor("x", [1, 8, 2048, 2048])], w=weights)))
    with pytest.raises(TooLittleMemory) as refused:
        chosen(network, 1)
    least = refused.value.least
    plans = [network.stream_plan(rows, least.plan.strips, sample=True) for rows in (1, 2, 4, 8, 16, 32, 64)]
    slices = find_inplace_slices(network.plan)
    every, few = (
        [project_stream(one, slices, 2, RUNTIME, SAMPLING_BYTES, limit=limit) for one in plans] for limit in (None, 1)
    )
    smallest, without = (min(one.total for one in found) for found in (few, every))
    assert least.memory.total <= smallest + MIB < without
    assert least.plan.rows == 1 and least.memory.held == LEAST_HELD and every[0].held is None
    assert all(one.tables < both.tables for one, both in zip(few, every, strict=True) if one.held)
    roomy = project_stream(plans[0], slices, 2, RUNTIME, limit=2**40)
    assert every[0].tables > MANY_TABLES and roomy.held == MOST_HELD


def odd_network(name: str) -> StreamPlanner:
    """x [1, 4, 2048, 1024] → Conv 3×3 → what a few bands, or one strip, do not stand for → y."""
    given = {"w": np.ones((4, 4, 3, 3), np.float32)}
    match name:
        case "few rows":  # of which each has 512 of the image
            given |= {"grid": np.array([1, 4, 4, 512, 1024]), "image": np.array([1, 4, 2048, 1024])}
            turned = [node("Reshape", "a grid", "g"), node("Transpose", "g", "t", perm=[0, 1, 3, 2, 4])]
            back = [node("Softmax", "t", "s", axis=3), node("Transpose", "s", "u", perm=[0, 1, 3, 2, 4])]
            rest = [*turned, *back, node("Reshape", "u image", "y")]
        case "mirrored":  # a strip at the left reads the right, too
            given |= {k: np.array([v]) for k, v in {"last": -1, "first": -(2**31), "across": 3, "back": -1}.items()}
            rest = [node("Slice", "a last first across back", "m"), node("Add", "a m", "y")]
        case _:  # resized by a factor of which no two rows are alike
            given |= {"s": np.array([1, 4, 2048, 1024])}
            half = node("MaxPool", "a", "p", kernel_shape=[2, 2], strides=[2, 2])
            rest = [half, node("Resize", "p _ _ s", "y", mode="linear", coordinate_transformation_mode="align_corners")]
    layers = [node("Conv", "x w", "a", pads=[1] * 4), *rest]
    return planner_of(plan_of(model(layers, [tensor("x", [1, 4, 2048, 1024])], **given)))


@pytest.mark.parametrize("name", ["few rows", "mirrored", "aligned"])
def test_samples_take_what_all_bands_and_strips_take(name: str):
    network = odd_network(name)
    slices = find_inplace_slices(network.plan)
    for rows, strips in ((4, (4,)), (32, (1,)), (64, (3,))):
        some, every = (
            project_stream(network.stream_plan(rows, strips, sample), slices, 2, RUNTIME) for sample in (True, False)
        )
        assert some.total <= every.total + SAMPLING_BYTES and every.total <= some.total + SAMPLING_BYTES
    with pytest.raises(TooLittleMemory) as refused:
        chosen(network, 1)
    least = -(-refused.value.least.memory.total // MIB)
    assert chosen(network, least).memory.total <= least * MIB
    with pytest.raises(TooLittleMemory):
        chosen(network, least - SAMPLING_BYTES // MIB - 2)


@pytest.mark.parametrize(("name", "size"), [("unet", 512), ("nafnet", 512)])
def test_extents_of_strips_are_those_of_their_schedules(name: str, size: int):
    """Across the rows: one walk over the regions of all strips finds what a schedule of each does."""
    network = planner(name, size).network
    swept, last = network.swept, network.swept.passes - 1
    parts = [part for part, _ in strip_parts(network.graph, swept, (4,), "each")]
    found = strip_extents(network, parts)
    for strip, part in enumerate(parts):
        for output, extents in common_extents([schedule_pass(network, last, 64, part)]).items():
            across = [k for k in range(len(extents)) if k != swept.axes.of(output)]
            assert [found[output][strip].tolist()[k] for k in across] == [extents[k] for k in across], output
    assert len(parts) == 4


def test_the_strip_in_the_middle_stands_for_those_of_volumes_too():
    """Cut along two axes, it is inside along both; numbers of strips that are one cut are tried once."""
    volume = planner("unet3d", 512)
    some, every = (volume.stream_plan(16, (3, 3), sample) for sample in (True, False))
    assert len(some.sweeps) == 1 and some.sweeps[0].times == len(every.sweeps) == 9
    slices = find_inplace_slices(volume.plan)
    sampled, whole = (project_stream(one, slices, 2, RUNTIME).total for one in (some, every))
    assert abs(whole - sampled) <= SAMPLING_BYTES
    cuts = [strip_edges(volume.plan.graph, volume.network.swept, strips) for strips in _strips(volume)]
    assert len(set(cuts)) == len(cuts) > 5


POSITIONS = np.random.default_rng(3).standard_normal((1, 3, 512, 1)).astype(np.float32)


def test_what_makes_bands_new_is_looked_at_in_one_pass(monkeypatch: pytest.MonkeyPatch):
    """Positions are added to rows: no band of any pass that computes them is like another."""
    nodes = [node("Add", "x positions", "a0")]
    for number in range(3):
        nodes.append(node("InstanceNormalization", f"a{number} one zero", f"a{number + 1}"))
    ones = {"one": np.ones(3, np.float32), "zero": np.zeros(3, np.float32)}
    network = model(nodes, [tensor("x", [1, 3, 512, 512])], "a3", positions=POSITIONS, **ones)
    scheduled = []
    monkeypatch.setattr(stream_plan, "schedule_pass", lambda *a, **k: scheduled.append(a) or schedule_pass(*a, **k))
    swept = planner_of(plan_of(network))
    sweeps = swept.stream_plan(8, sample=True).sweeps
    assert len(sweeps) > 3 and {sweep.new for sweep in sweeps} == {1.0}
    assert len(scheduled) == len(sweeps) + 1


def test_rows_that_are_kept_alike_are_looked_at_once():
    """Layers of pixels keep no rows: what is ready for two ways of keeping them is the same."""
    network = model([node("Relu", "x", "a"), node("Sigmoid", "a", "y")], [tensor("x", [1, 3, 512, 512])])
    swept = planner_of(plan_of(network))
    short, long = (
        swept.stream_plan(8, (2,), sample=True, saved=saved).sweeps for saved in (SMALL_SAVED_SHARE, LARGE_SAVED_SHARE)
    )
    assert len(short) == len(long) and all(a is b for a, b in zip(short, long, strict=True))


@pytest.mark.parametrize(("name", "size"), [("unet", 512), ("nafnet", 512), ("unet3d", 128)])
def test_strips_that_are_scheduled_together_are_those_that_are_scheduled_alone(name: str, size: int):
    together, alone = planner(name, size), planner(name, size)
    numbers = list(_strips(together))[1:]
    together.expect(numbers)
    for rows, strips in product((16, 64), numbers):
        some, one = (p.stream_plan(rows, strips, sample=True).sweeps for p in (together, alone))
        assert [sweep.times for sweep in some] == [sweep.times for sweep in one]
        for a, b in zip((sweep.schedule for sweep in some), (sweep.schedule for sweep in one), strict=True):
            assert (a.bands, a.ahead, a.units, list(a.rows)) == (b.bands, b.ahead, b.units, list(b.rows))
            for stored in a.rows:
                for ends in ("keep", "lo", "hi"):
                    np.testing.assert_array_equal(getattr(a.rows[stored], ends), getattr(b.rows[stored], ends))
                assert a.across[stored].slices() == b.across[stored].slices()
            assert all(x.region.slices(3) == y.region.slices(3) for x, y in zip(a.reads, b.reads, strict=True))
