"""The protocol of tickets, in every interleaving of its atomic steps; and that the check notices broken ones."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.runtime.cuda.tickets import TICKETS, Tickets
from brickrt.runtime.explore import ProtocolError, explore
from brickrt.runtime.states import COMPLETE, IN_PROGRESS, word

GRAPHS = {
    "chain": ((), (0,), (1,), (2,)),  # 0 ← 1 ← 2 ← 3
    "diamond": ((), (0,), (0,), (1, 2)),  # 0 ← 1, 0 ← 2, both ← 3
    "halo": ((), (), (), (0, 1), (0, 1, 2), (1, 2)),  # 3 bricks below, 3 above, each reading its neighbours
    "two chains": ((), (), (0,), (1,), (2,), (3,)),  # 0 ← 2 ← 4 and 1 ← 3 ← 5
}
CHAIN = GRAPHS["chain"]


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("deps", GRAPHS.values(), ids=GRAPHS.keys())
def test_every_interleaving_computes_every_task_once_in_two_epochs(deps, blocks, most):
    """The second epoch starts from the words and the counter that the first one leaves."""
    first = explore(Tickets(deps, most), blocks)
    assert first.words == (word(1, COMPLETE),) * len(deps)
    second = explore(Tickets(deps, most, 2, TICKETS + len(deps)), blocks, first.words)
    assert second.words == (word(2, COMPLETE),) * len(deps)


def test_blocks_interleave():
    """The check is worth something only if it sees many states: more blocks, more of them."""
    states = [explore(Tickets(GRAPHS["halo"]), blocks).states for blocks in (1, 2, 3)]
    assert states[0] < 100 < 1_000 < states[1] < 10_000 < states[2]


@st.composite
def small_graphs(draw):
    n = draw(st.integers(1, 5))
    return tuple(tuple(sorted(draw(st.sets(st.integers(0, k - 1), max_size=3)))) if k else () for k in range(n))


@settings(max_examples=30, deadline=None)
@given(small_graphs(), st.integers(1, 3), st.integers(1, 2))
def test_any_small_graph(deps, most, blocks):
    explore(Tickets(deps, most), blocks)


@dataclass(frozen=True)
class RunsWhatIsNotReady(Tickets):
    def check(self, shared, me):
        return shared, me._replace(step="begin", held=me.held[: me.place] + me.held[me.place + 1 :])


@dataclass(frozen=True)
class ReadsWhatIsInProgress(Tickets):
    def state(self, shared, task):
        state = super().state(shared, task)
        return COMPLETE if state == IN_PROGRESS else state


@dataclass(frozen=True)
class LooksAtTheOldestAlone(Tickets):
    """Harmless with tickets in order, since the oldest one of some block is always ready."""

    def go_on(self, me, place):
        return super().go_on(me, place if place == 0 else len(me.held))


@dataclass(frozen=True)
class LooksAtTheLatestAlone(Tickets):
    def go_on(self, me, place):
        me = super().go_on(me, place)
        return me._replace(place=len(me.held) - 1) if me.step == "visit" else me


@dataclass(frozen=True)
class LoadsAndStoresTheCounter(Tickets):
    def draw(self, shared, me):
        return shared, me._replace(step="put", dep=shared.tickets)

    def put(self, shared, me):
        return super().draw(shared._replace(tickets=me.dep), me)


def test_looking_at_the_oldest_alone_suffices():
    for deps in GRAPHS.values():
        explore(LooksAtTheOldestAlone(deps), 2)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (RunsWhatIsNotReady(CHAIN), "begins before its dependencies have ended"),
        (ReadsWhatIsInProgress(CHAIN), "begins before its dependencies have ended"),
        (LooksAtTheLatestAlone(((), (0,), (0, 1), (0, 1))), "no worker can ever go on"),
        (LoadsAndStoresTheCounter(CHAIN), "begins twice|takes shared memory back"),
        (Tickets(((2,), (2,), ()), most=1), "no worker can ever go on"),
        (Tickets(CHAIN, 2, 1, TICKETS + 4), "not complete"),
    ],
)
def test_broken_protocols_are_caught(broken, message):
    with pytest.raises(ProtocolError, match=message):
        explore(broken, 2)
