"""The protocol of tickets, in every interleaving of its atomic steps; that the check notices broken ones; and that the
device's code takes the same steps."""

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.runtime.cuda.kernels.context_header import header
from brickrt.runtime.cuda.kernels.kernel_context import HELD
from brickrt.runtime.state_words import COMPLETE, IN_PROGRESS, word
from tests.support.cuda.host_kernels import compiled, needs_compiler
from tests.support.model_checker import ProtocolError, explore
from tests.support.tickets import LEFT, TICKETS, Tickets

GRAPHS = {
    "chain": ((), (0,), (1,), (2,)),  # 0 ← 1 ← 2 ← 3
    "diamond": ((), (0,), (0,), (1, 2)),  # 0 ← 1, 0 ← 2, both ← 3
    "halo": ((), (), (), (0, 1), (0, 1, 2), (1, 2)),  # 3 bricks below, 3 above, each reading its neighbours
    "two chains": ((), (), (0,), (1,), (2,), (3,)),  # 0 ← 2 ← 4 and 1 ← 3 ← 5
}
CHAIN = GRAPHS["chain"]


@pytest.mark.parametrize("most", [1, 2, HELD])
@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("deps", GRAPHS.values(), ids=GRAPHS.keys())
def test_every_interleaving_computes_every_task_once_in_two_epochs(deps, blocks, most):
    """The second epoch starts from the words and the counter that the first one leaves (see the last test)."""
    first = explore(Tickets(deps, blocks, most), blocks)
    assert first.words == (word(1, COMPLETE),) * len(deps)
    second = explore(Tickets(deps, blocks, most, 2, TICKETS + blocks * LEFT), blocks, first.words)
    assert second.words == (word(2, COMPLETE),) * len(deps)


def test_blocks_interleave():
    """The check is worth something only if it sees many states: more blocks, more of them."""
    states = [explore(Tickets(GRAPHS["halo"], blocks), blocks).states for blocks in (1, 2, 3)]
    assert states[0] < 100 < 1_000 < states[1] < 10_000 < states[2]


@st.composite
def small_graphs(draw, most=5):
    n = draw(st.integers(1, most))
    return tuple(tuple(sorted(draw(st.sets(st.integers(0, k - 1), max_size=3)))) if k else () for k in range(n))


@settings(max_examples=30, deadline=None)
@given(small_graphs(), st.integers(1, 3), st.integers(1, 2))
def test_any_small_graph(deps, most, blocks):
    explore(Tickets(deps, blocks, most), blocks)


@dataclass(frozen=True)
class RunsWhatIsNotReady(Tickets):
    def check(self, shared, me):
        return shared, me._replace(step="begin", held=me.held[: me.place] + me.held[me.place + 1 :], maybe=())


@dataclass(frozen=True)
class BlockReadsWhatIsInProgress(Tickets):
    def state(self, shared, me, task):
        state = super().state(shared, me, task)
        return COMPLETE if state == IN_PROGRESS else state


@dataclass(frozen=True)
class LooksAtTheOldestAlone(Tickets):
    """Harmless with tickets in order, since the oldest one of some block is always ready."""

    def visit(self, shared, me):
        after, me = super().visit(shared, me)
        return after, self.look(me) if me.step == "visit" and me.place else me


@dataclass(frozen=True)
class LooksAtTheLatestAlone(Tickets):
    def visit(self, shared, me):
        return super().visit(shared, me._replace(place=len(me.held) - 1))


@dataclass(frozen=True)
class FirstToLeaveRenews(Tickets):
    def leave(self, shared, me):
        after, me = super().leave(shared, me)
        return after, me._replace(step="renew")


@dataclass(frozen=True)
class LoadsAndStoresTheCounter(Tickets):
    def draw(self, shared, me):
        return shared, me._replace(step="put", dep=shared.tickets)

    def put(self, shared, me):
        return super().draw(shared._replace(tickets=me.dep), me)


def test_looking_at_the_oldest_alone_suffices():
    for deps in GRAPHS.values():
        explore(LooksAtTheOldestAlone(deps, 2), 2)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (RunsWhatIsNotReady(CHAIN, 2), "begins before its dependencies have ended"),
        (BlockReadsWhatIsInProgress(CHAIN, 2), "begins before its dependencies have ended"),
        (LooksAtTheLatestAlone(((), (0,), (0, 1), (0, 1)), 2, 2), "no worker can ever go on"),
        (LoadsAndStoresTheCounter(CHAIN, 2), "begins twice|takes shared memory back"),
        (Tickets(((2,), (2,), ()), 2, most=1), "no worker can ever go on"),
        (Tickets(CHAIN, 2, counter=4), "not complete"),
        (FirstToLeaveRenews(CHAIN, 2), "begins twice|not complete|takes shared memory back"),
    ],
)
def test_broken_protocols_are_caught(broken, message):
    with pytest.raises(ProtocolError, match=message):
        explore(broken, 2)


# ---- the device's code

SOURCE = Path(__file__).parent / "schedule_trace.cpp"
STEPS = ("open", "draw", "see", "acquire", "check", "visit", "begin", "end", "publish", "leave", "renew")


@cache
def scheduler(most):
    """schedule.cuh, whose blocks take turns at random."""
    held = f"constexpr int HELD = {HELD};"
    assert held in header()
    text = SOURCE.read_text().replace('#include "records.cuh"', header().replace(held, f"constexpr int HELD = {most};"))
    return compiled(text, "-DBRICK_WARP=1", "-O0")  # the flags of CallbackDriver, whose headers are compiled once


def traced(deps, blocks, most, epochs, seed):
    """(block, step, task) in the order in which blocks did them."""
    offsets = np.cumsum([0, *map(len, deps)]).astype(np.int32)
    flat, out = np.array([d for mine in deps for d in mine] or [0], np.int32), np.zeros((100_000, 3), np.int32)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (offsets, flat, out)]
    count = scheduler(most).trace(len(deps), *pointers[:2], blocks, epochs, seed, pointers[2], len(out))
    assert 0 < count <= len(out), "the run stopped, or tasks are missing"
    return [(block, STEPS[op], task) for block, op, task in out[:count].tolist()]


def replay(deps, blocks, most, lines):
    """The model's blocks take the same steps on the same tasks, in the same order; its memory at the end."""
    model = Tickets(deps, blocks, most)
    shared, all_blocks = model.memory((0,) * len(deps)), [model.start(k) for k in range(blocks)]
    for block, step, task in lines:
        me = all_blocks[block]
        if step == "see":  # what the compare-and-swap expects: nobody else writes it
            continue
        if me.step == "stop":
            me = model.start(block)  # the next epoch
        assert me.step == step
        if step == "visit":
            waiting, dep = me.held[me.place]
            assert deps[waiting][dep] == task
        elif step == "check":
            assert deps[me.task][me.dep] == task
        elif step not in ("open", "draw", "leave", "renew"):
            assert me.task == task
        shared, all_blocks[block] = getattr(model, step)(shared, me)
    assert {me.step for me in all_blocks} == {"stop"}
    return shared


@needs_compiler
@settings(max_examples=40, deadline=None)
@given(small_graphs(9), st.sampled_from([1, 2, HELD]), st.integers(1, 5), st.integers(0, 2**31))
def test_the_device_takes_the_steps_of_the_model(deps, most, blocks, seed):
    epochs = 2
    end = replay(deps, blocks, most, traced(deps, blocks, most, epochs, seed))
    assert end.words == (word(epochs, COMPLETE),) * len(deps)
    assert end.begun == end.ended == (epochs,) * len(deps)
    assert end.tickets == epochs * (TICKETS + blocks * LEFT)


@needs_compiler
def test_traces_have_all_steps():
    lines = traced(GRAPHS["halo"], 3, HELD, 20, 1)
    assert {step for _, step, _ in lines} == set(STEPS)
