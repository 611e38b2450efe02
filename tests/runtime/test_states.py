"""The protocol of state words, in every interleaving of its atomic steps; and that the check notices broken ones."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.runtime.explore import ProtocolError, explore
from brickrt.runtime.states import COMPLETE, IN_PROGRESS, NOT_STARTED, Protocol, state_of, word

GRAPHS = {
    "chain": ((), (0,), (1,), (2,)),  # 0 ← 1 ← 2 ← 3
    "diamond": ((), (0,), (0,), (1, 2)),  # 0 ← 1, 0 ← 2, both ← 3
    "halo": ((), (), (), (0, 1), (0, 1, 2), (1, 2)),  # 3 bricks below, 3 above, each reading its neighbours
    "two chains": ((), (0,), (1,), (), (3,), (4,)),  # 0 ← 1 ← 2 and 3 ← 4 ← 5
}
CHAIN, HALO = GRAPHS["chain"], GRAPHS["halo"]


def in_order(deps, **options):
    return Protocol(deps, tuple(range(len(deps))), **options)


def complete(deps, epoch=1):
    return (word(epoch, COMPLETE),) * len(deps)


def test_words_of_older_epochs_are_not_started():
    assert [state_of(word(5, state), 5) for state in (NOT_STARTED, IN_PROGRESS, COMPLETE)] == [0, 1, 2]
    assert {state_of(word(4, state), 5) for state in (NOT_STARTED, IN_PROGRESS, COMPLETE)} == {NOT_STARTED}
    assert state_of(0, 1) == NOT_STARTED


@pytest.mark.parametrize("capacity", [0, 1, 2, 4])
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("deps", GRAPHS.values(), ids=GRAPHS.keys())
def test_every_interleaving_computes_every_task_once_in_two_epochs(deps, workers, capacity):
    """The second epoch starts from the words that the first one leaves."""
    first = explore(in_order(deps, capacity=capacity), workers)
    assert first.words == complete(deps)
    second = explore(in_order(deps, capacity=capacity, epoch=2), workers, first.words)
    assert second == (first.states, complete(deps, 2))


@pytest.mark.parametrize("workers", [2, 3])
def test_a_task_with_two_tickets_is_run_by_one_worker(workers):
    """0 ← 1, demanded by two readers: tickets 0 0 1 1"""
    assert explore(Protocol(((), (0,)), (0, 0, 1, 1)), workers).words == complete(((), (0,)))


@st.composite
def small_graphs(draw):
    n = draw(st.integers(1, 5))
    return tuple(tuple(sorted(draw(st.sets(st.integers(0, k - 1), max_size=3)))) if k else () for k in range(n))


@settings(max_examples=40, deadline=None)
@given(small_graphs(), st.integers(0, 3), st.integers(1, 3))
def test_any_small_graph(deps, capacity, workers):
    assert explore(in_order(deps, capacity=capacity), workers).words == complete(deps)


def test_workers_interleave():
    """The check is worth something only if it sees many states: more workers, more of them."""
    states = [explore(in_order(HALO), workers).states for workers in (1, 2, 3)]
    assert states[0] < 100 < 1_000 < states[1] < 10_000 < states[2]


@dataclass(frozen=True)
class PublishesBeforeTheRun(Protocol):
    def acquire(self, shared, me):
        return self.store(shared, me.task, COMPLETE), me._replace(step="begin")


@dataclass(frozen=True)
class StoresInsteadOfComparing(Protocol):
    def acquire(self, shared, me):
        return self.store(shared, me.task, IN_PROGRESS), me._replace(step="begin")


@dataclass(frozen=True)
class ReadsWhatIsInProgress(Protocol):
    def state(self, shared, task):
        state = super().state(shared, task)
        return COMPLETE if state == IN_PROGRESS else state


@dataclass(frozen=True)
class ForgetsTheEpoch(Protocol):
    def state(self, shared, task):
        return shared.words[task] % 4


@dataclass(frozen=True)
class DropsDeferredTasks(Protocol):
    def next(self, me):
        return super().next(me._replace(deferred=(), slot=0) if me.drained else me)


@dataclass(frozen=True)
class TicketsAreReadThenWritten(Protocol):
    """Two workers can read the same ticket before either counts on."""

    def take(self, shared, me):
        return shared, me._replace(step="count", seen=shared.ticket)

    def count(self, shared, me):
        return super().take(shared._replace(ticket=me.seen), me)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (PublishesBeforeTheRun(CHAIN, (0, 1, 2, 3)), "begins before its dependencies have ended"),
        (StoresInsteadOfComparing(CHAIN, (0, 0, 1, 2, 3)), "begins twice"),
        (ReadsWhatIsInProgress(CHAIN, (0, 1, 2, 3)), "begins before its dependencies have ended"),
        (ForgetsTheEpoch(CHAIN, (0, 1, 2, 3), epoch=2), "not complete"),
        (DropsDeferredTasks(CHAIN, (0, 1, 2, 3)), "not complete"),
        (TicketsAreReadThenWritten(CHAIN, (0, 1, 2, 3)), "takes shared memory back"),
        (Protocol(CHAIN, (3, 2, 1, 0), capacity=1), "no worker can ever go on"),
        (Protocol(HALO, (3, 4, 5, 0, 1, 2), capacity=0), "no worker can ever go on"),
        (Protocol(CHAIN, (0, 1, 3)), "no worker can ever go on"),
        (Protocol(CHAIN, (0, 1, 2)), r"tasks \[3\] not complete"),
    ],
)
def test_broken_protocols_are_caught(broken, message):
    with pytest.raises(ProtocolError, match=message):
        explore(broken, 2, complete(broken.deps) if broken.epoch == 2 else ())


def test_the_error_tells_the_way_there():
    with pytest.raises(ProtocolError, match=r"begins before .*; after .*take.*begin 0"):
        explore(PublishesBeforeTheRun(((), (0,)), (0, 1)), 2)


def test_deferral_lets_a_long_enough_list_forgive_a_bad_order():
    """Tickets 2 1 0 of the chain 0 ← 1 ← 2: room for both others and the ticket in hand is enough."""
    backwards = Protocol(CHAIN[:3], (2, 1, 0), capacity=3)
    assert explore(backwards, 1).words == complete(CHAIN[:3])
    with pytest.raises(ProtocolError, match="no worker can ever go on"):
        explore(replace(backwards, capacity=2), 1)
