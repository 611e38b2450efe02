"""Memory known before a program runs, against what it then holds."""

from __future__ import annotations

import weakref
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickrt import Runtime, zoo
from brickrt.graph.errors import BrickError
from brickrt.plan.device.device_spec import PRESETS, host_device
from brickrt.plan.geometry.arena_packing import ALIGNMENT, Lifetime, aligned, arena_size, pack_arena
from brickrt.plan.geometry.arena_packing import ALIGNMENT as ARENA_ALIGNMENT
from brickrt.runtime.analysis.memory_projection import MemoryProjection, check_fits, project
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.cpu.memory import CHUNK, HugePagePool, aligned_empty
from brickrt.runtime.cpu.program import CpuProgram
from tests.support.graphs.plan_graphs import Sketch, bottlenecks
from tests.support.task_checks import lowered, with_values


def life(tensor: str, nbytes: int, born: int, dies: int) -> Lifetime:
    return Lifetime(tensor, nbytes, born, dies, tuple(range(born, dies + 1)))


def test_tensors_that_never_meet_share_memory():
    """a ──a
      b──b        one subgraph of rest between them, so that writers need not wait
    c─────────c   meets both
    """
    offsets, total, reuses = pack_arena([life("a", 100, 0, 1), life("b", 100, 3, 4), life("c", 100, 1, 4)])
    assert offsets["a"] == offsets["b"] != offsets["c"]
    assert total == 2 * aligned(100)
    assert [(r.tensor, r.users) for r in reuses] == [("b", (0, 1))]


def test_neighbours_in_time_do_not_share():
    offsets, total, reuses = pack_arena([life("a", 64, 0, 1), life("b", 64, 2, 3)])
    assert len({offsets["a"], offsets["b"]}) == 2
    assert (total, reuses) == (128, [])


def test_places_are_aligned():
    offsets, _, _ = pack_arena([life(f"t{k}", 10 + k, 0, 1) for k in range(5)])
    assert all(offset % ARENA_ALIGNMENT == 0 for offset in offsets.values())
    assert len(set(offsets.values())) == 5


@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3), max_size=20), st.integers(0, 2))
def test_tensors_that_live_together_lie_apart(drawn: list[tuple[int, int, int]], slack: int):
    """Each lies as low as those that are no smaller let it."""
    lives = [life(f"t{k}", 64 * size, born, born + more) for k, (size, born, more) in enumerate(drawn)]
    offsets, total, _ = pack_arena(lives, slack)
    assert total == arena_size(lives, slack) == max((offsets[one.tensor] + one.nbytes for one in lives), default=0)
    placed: list[Lifetime] = []
    for one in sorted(lives, key=lambda one: (-one.nbytes, one.born)):
        beside = [o for o in placed if one.born <= o.dies + slack and o.born <= one.dies + slack]
        taken = [range(offsets[o.tensor], offsets[o.tensor] + o.nbytes) for o in beside]
        free = (at for at in range(0, total + 1, 64) if all(at >= r.stop or at + one.nbytes <= r.start for r in taken))
        assert offsets[one.tensor] == next(free)
        placed.append(one)


@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3), max_size=20), st.integers(0, 2))
def test_writers_wait_for_all_that_had_their_memory(drawn: list[tuple[int, int, int]], slack: int):
    """At once for those that had it last, and through the writers of these for all others."""
    lives = [life(f"t{k}", 64 * size, born, born + more) for k, (size, born, more) in enumerate(drawn)]
    offsets, _, reuses = pack_arena(lives, slack)
    at_once = {reuse.tensor: set(reuse.users) for reuse in reuses}
    done = dict[str, set[int]]()
    for one in sorted(lives, key=lambda one: one.born):
        place = range(offsets[one.tensor], offsets[one.tensor] + one.nbytes)
        before = [
            o for o in lives if o.dies < one.born and offsets[o.tensor] in range(place.start - o.nbytes + 1, place.stop)
        ]
        mine = at_once.get(one.tensor, set())
        done[one.tensor] = mine.union(*(done[o.tensor] for o in before if mine >= set(o.users)))
        assert done[one.tensor] >= {user for o in before if o.nbytes and one.nbytes for user in o.users} >= mine


def test_memory_that_was_taken_over_is_waited_for_once():
    """b has all of a's memory and c of b's: c's writers wait for users of b alone."""
    _, _, reuses = pack_arena([life("a", 64, 0, 1), life("b", 64, 3, 4), life("c", 64, 6, 7)])
    assert [(r.tensor, r.users) for r in reuses] == [("b", (0, 1)), ("c", (3, 4))]


def test_nothing_to_store():
    assert pack_arena([]) == ({}, 0, [])


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 4)])
def test_copies_are_aligned_and_in_order(shape):
    array = np.asfortranarray(np.arange(np.prod(shape), dtype=np.float64).reshape(shape))
    copy = HugePagePool().copy([array])
    assert not copy.nbytes or copy.ctypes.data % ALIGNMENT == 0
    assert copy.tobytes() == array.tobytes("C")
    assert aligned_empty(100).ctypes.data % ALIGNMENT == 0


def test_arrays_of_a_pool_lie_apart():
    pool = HugePagePool()
    arrays = [pool.empty(nbytes) for nbytes in (1, 64, 100, CHUNK // 2, CHUNK // 2, 3 * CHUNK, 5, 0)]
    for k, array in enumerate(arrays):
        array[:] = k
    assert [a.nbytes for a in arrays] == [1, 64, 100, CHUNK // 2, CHUNK // 2, 3 * CHUNK, 5, 0]
    assert all((a == k).all() and (not a.size or a.ctypes.data % ALIGNMENT == 0) for k, a in enumerate(arrays))


@pytest.mark.parametrize("strategy", ["padded", "memoized"])
def test_what_is_projected_is_what_is_held(strategy):
    graph, _ = with_values(bottlenecks(1, size=64, channels=16))
    tasks = lowered(graph, strategy, host_device(), brick=4)
    said = project(tasks, threads=2)
    program = CpuProgram.build(tasks, host_isa(host_device()), 2)
    assert said.total == said.constants + said.arena + said.scratch + said.tables + said.io
    assert said.arena == tasks.arena_bytes
    assert said.constants <= program.constant_bytes <= 2 * said.constants
    assert said.arena + said.scratch <= program.working_bytes <= 2 * (said.arena + said.scratch + said.tables)
    assert said.io == sum(tasks.plan.graph.types[n].nbytes for n in (*graph.inputs, *graph.outputs))


def test_more_threads_hold_more_scratch():
    s = Sketch()
    x = s.input(1, 16, 32, 32)
    for _ in range(3):
        x = s.conv(x, 16)
    tasks = lowered(s.graph(), "padded", brick=8)
    one, four = project(tasks, 1), project(tasks, 4)
    assert tasks.scratch_bytes > 0
    assert four.scratch == 4 * one.scratch
    assert four.total - one.total == 3 * tasks.scratch_bytes
    assert MemoryProjection().total == 0


@pytest.mark.parametrize("known", [False, True])
def test_building_a_program_can_release_the_weights(known, tmp_path, monkeypatch):
    """Nothing but the plan, whether it is made anew or known, holds weights that were folded: an engine that packs them
    gives them up one by one."""
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))
    if known:
        Runtime(zoo.build("mobilenetv2", size=32), device="null", threads=1).prepare(
            {"x": np.zeros((1, 3, 32, 32), np.float32)}
        )
    found = []

    def build(tasks, constants, threads, progress):
        folded = [weakref.ref(array) for array in constants.values() if array.ndim == 4]
        constants.clear()
        found.append((len(folded), sum(held() is not None for held in folded)))
        raise BrickError("enough")

    runtime = Runtime(zoo.build("mobilenetv2", size=32), threads=1)
    runtime._pipeline = replace(runtime._pipeline, engine=replace(runtime._pipeline.engine, build=build))
    with pytest.raises(BrickError, match="enough"):
        runtime.execute({"x": np.zeros((1, 3, 32, 32), np.float32)})
    assert found == [(52, 0)]


def test_a_gpu_has_memory_of_its_own():
    """What this machine could hold is not asked there."""
    sizes = (PRESETS["a100"].memory, 1 << 20)
    fits, little = (lowered(bottlenecks(1), device=replace(PRESETS["a100"], memory=size)) for size in sizes)
    check_fits(fits, 1)
    with pytest.raises(BrickError, match=r"the GPU has 0\.0 GiB, .*: use smaller inputs, or device cpu"):
        check_fits(little, 1)
