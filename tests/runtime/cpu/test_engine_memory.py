"""What programs of one Runtime share: working memory, one set for each run at a time, and packed constants."""

from __future__ import annotations

import gc
import itertools
from concurrent.futures import ThreadPoolExecutor
from weakref import ref

import numpy as np
import pytest

import brickrt
import brickrt.runtime.cpu.memory as memory_module
from brickrt import zoo
from brickrt.runtime.cpu.engine_memory import EngineMemory, PackedConstants
from brickrt.runtime.cpu.memory import CHUNK, FIRST, PAGE, ROOM, WORTH_ALIGNING, WORTH_HUGE, output_array
from brickrt.runtime.cpu.working_memory import SCRATCH_HEAD, Buffers, Need, WorkingMemory
from brickrt.runtime.session.runtime import Runtime
from tests.support.cpu.described import plan_for

SIDES = (16, 24, 40)

LINE = 64  # bytes of the cache


def network():
    """A small U-Net whose height and width are free."""
    model = zoo.build("unet", size=16, levels=1, width=16)
    for end in (*model.graph.input, *model.graph.output):
        for side, dim in zip("HW", end.type.tensor_type.shape.dim[2:], strict=True):
            dim.dim_param = side
    return model


def image(side: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(side).standard_normal((1, 3, side, 16), dtype=np.float32)}


def test_runs_one_after_the_other_have_the_same_memory_which_grows():
    memory = WorkingMemory()
    small, large = Need(100, 64, 1), Need(50, 128, 2)
    first = memory.lend(small)
    number = first.number
    memory.take_back(first)
    assert memory.lend(Need(80, 0, 1)) is first and first.number == number != 0
    memory.take_back(first)
    second = memory.lend(large)
    assert second.number != number and second.need == Need(100, 128, 2)
    assert second.arena.nbytes == 100 and [array.nbytes - SCRATCH_HEAD for array in second.scratch] == [128, 128]


def test_memory_that_grows_keeps_the_pages_that_are_there():
    buffers = Buffers()
    buffers.grow(Need(3 * PAGE, PAGE, 1))
    buffers.arena[:], buffers.scratch[0][:] = 1, 2
    at = buffers.arena.ctypes.data, buffers.scratch[0].ctypes.data
    buffers.grow(Need(9 * PAGE, 2 * PAGE, 2))
    assert (buffers.arena.ctypes.data, buffers.scratch[0].ctypes.data) == at
    assert buffers.arena[: 3 * PAGE].all() and not buffers.arena[3 * PAGE :].any()
    assert (
        buffers.scratch[0][:PAGE].all() and [each.nbytes for each in buffers.scratch] == [SCRATCH_HEAD + 2 * PAGE] * 2
    )
    before = buffers.arena
    buffers.grow(Need(ROOM * CHUNK, 0, 1))  # more than there was room for
    assert not np.shares_memory(before, buffers.arena) and buffers.arena.nbytes == ROOM * CHUNK


def test_only_what_is_large_lies_in_huge_pages(monkeypatch):
    """The system clears all of a huge page for the first byte that is written to it."""
    advised, advise = [], memory_module.Pages.in_huge_ones
    monkeypatch.setattr(memory_module.Pages, "in_huge_ones", lambda pages: advised.append(1) or advise(pages))
    memory, pool = memory_module.GrowingMemory(), memory_module.HugePagePool()
    few, more = memory.grown(WORTH_HUGE - 1), [pool.empty(FIRST // 2), pool.empty(FIRST // 2)]
    assert not advised
    few[:] = 1
    grown, large = memory.grown(WORTH_HUGE), pool.empty(FIRST)
    assert len(advised) == 2 and np.shares_memory(few, grown) and few.all() and not grown[few.size :].any()
    parts = sorted([*more, large], key=lambda part: part.ctypes.data)
    assert not any(np.shares_memory(one, other) for one, other in itertools.pairwise(parts))


def test_a_process_that_may_have_no_address_space_to_spare_gets_what_it_needs(monkeypatch):
    asked, made = [], memory_module.Pages

    def strict(nbytes: int) -> memory_module.Pages:
        asked.extend([nbytes] if nbytes else [])
        if nbytes > CHUNK:
            raise OSError
        return made(nbytes)

    monkeypatch.setattr(memory_module, "Pages", strict)
    assert memory_module.GrowingMemory().grown(CHUNK).nbytes == CHUNK and asked == [ROOM * CHUNK, CHUNK]


@pytest.mark.parametrize("kind", ["RLIMIT_DATA", "RLIMIT_AS"])
def test_no_address_space_is_spared_where_the_process_has_a_limit(kind, monkeypatch):
    """Limits count it, and would refuse others what they need."""
    resource = pytest.importorskip("resource")
    limits = {getattr(resource, kind): (2**40, resource.RLIM_INFINITY)}
    monkeypatch.setattr(resource, "getrlimit", lambda asked: limits.get(asked, (resource.RLIM_INFINITY,) * 2))
    asked, made = [], memory_module.Pages
    monkeypatch.setattr(memory_module, "Pages", lambda nbytes: asked.extend([nbytes] if nbytes else []) or made(nbytes))
    assert memory_module.GrowingMemory().grown(CHUNK).nbytes == CHUNK and asked == [CHUNK]


def test_runs_at_the_same_time_have_memory_of_their_own():
    memory = WorkingMemory()
    one, other = memory.lend(Need(100, 0, 1)), memory.lend(Need(100, 0, 1))
    assert not np.shares_memory(one.arena, other.arena)
    memory.reserve(Need(200, 0, 1))  # while both run, nothing is made for a run that may never be
    assert not memory.free
    memory.take_back(one)
    memory.take_back(other)
    memory.reserve(Need(200, 0, 1))
    assert sorted(buffers.need.arena for buffers in memory.free) == [100, 200]


def test_what_fails_is_not_lent():
    memory = WorkingMemory()
    with pytest.raises((MemoryError, OSError, OverflowError, ValueError)):
        memory.lend(Need(1 << 62, 0, 1))
    memory.reserve(Need(10, 0, 1))
    assert len(memory.free) == 1


def test_memory_is_there_as_long_as_programs_are():
    memory = EngineMemory()
    working = memory.working()
    assert memory.working() is working
    gone = ref(working)
    del working
    gc.collect()
    assert gone() is None


def test_programs_of_several_sizes_share_memory_and_give_what_they_give_alone():
    model = network()
    runtime = Runtime(model, device="cpu", threads=2)
    alone = {side: Runtime(model, device="cpu", threads=2).execute(image(side))["y"] for side in SIDES}
    programs = {}
    for side in (*SIDES, *reversed(SIDES)):
        np.testing.assert_array_equal(runtime.execute(image(side))["y"], alone[side])
        (programs[side],) = runtime.plan.programs
    workings = {id(program._memory.working) for program in programs.values()}
    assert len(workings) == 1 and len(programs[16]._memory.working.free) == 1
    with ThreadPoolExecutor(3) as threads:
        for side, got in zip(SIDES * 4, threads.map(lambda s: runtime.execute(image(s))["y"], SIDES * 4), strict=True):
            np.testing.assert_array_equal(got, alone[side])
    assert 1 <= len(programs[16]._memory.working.free) <= 3


def test_another_size_packs_nothing_again(monkeypatch):
    """All weights of a layer that has one kernel at both sizes; on some processors more layers have others."""
    speeds = {"l2": 200.0, "l3": 80.0, "memory": 40.0}
    plan_for(monkeypatch, cores=2, l1=2**15, l2=2**20, l3=2**25, peak_gflops_per_core=110.0, bandwidth=speeds)
    runtime, strategy = Runtime(network(), device="cpu", strategy="layerwise"), []
    for side in (32, 64):
        runtime.execute(image(side))
        (program,) = runtime.plan.programs
        strategy.append((program.tasks.plan.algorithms, {id(array) for array in program.constants}, program.held))
    (one, first, _), (other, second, held) = strategy
    assert one == other
    weights = [array.nbytes for array in program.constants if id(array) in first]
    assert sum(weights) > 0.9 * program.constant_bytes and first & second <= held.keys()


def test_what_is_packed_alike_has_the_same_bytes(monkeypatch):
    """Every constant of every kernel of several sizes, packed anew, is what was found packed."""
    seen = 0

    def check(self, memory, kernel, i, array):
        nonlocal seen
        found, anew = get(self, memory, kernel, i, array), memory.copy(kernel.pack_parts(i, array))
        assert found.tobytes() == anew.tobytes(), kernel
        seen += 1
        return found

    get = PackedConstants.get
    monkeypatch.setattr(PackedConstants, "get", check)
    monkeypatch.setattr(PackedConstants, "at_once", lambda *_: None)
    runtime = Runtime(network(), device="cpu")
    for side in SIDES:
        runtime.prepare(image(side))
    assert seen > 20


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_page_is_there_whoever_asked_for_it(monkeypatch, threads):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(memory_module, "PART", 64 * PAGE)
    monkeypatch.delattr(memory_module.mmap, "MADV_HUGEPAGE", raising=False)  # of which one would bring all at once
    found = memory_module.GrowingMemory().grown(1000 * PAGE + 5, threads)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    found[::PAGE] = 1
    found[-1] = 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 100


@pytest.mark.parametrize(
    ("shape", "dtype"), [((3, 5), np.float32), ((7, 1001), np.float64), ((1, 3, 70, 90), np.uint8), ((0, 9), np.int64)]
)
def test_large_outputs_begin_at_a_line_of_the_cache(shape: tuple[int, ...], dtype: type):
    array = output_array(shape, np.dtype(dtype))
    array[...] = 1
    assert (array.shape, array.dtype) == (shape, dtype) and array.flags.c_contiguous and array.flags.writeable
    assert array.nbytes < WORTH_ALIGNING or array.ctypes.data % LINE == 0


def test_outputs_of_a_runtime_do_so_in_every_call():
    runtime = brickrt.Runtime(zoo.build("unet", size=64, levels=1, width=4), device="cpu", threads=1)
    found = [runtime.execute({"x": np.zeros((1, 3, 64, 64), np.float32)})["y"] for _ in range(4)]
    assert all(y.nbytes >= WORTH_ALIGNING and y.ctypes.data % LINE == 0 for y in found)
