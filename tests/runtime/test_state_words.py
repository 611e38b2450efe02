"""The protocol of state words, in every interleaving of its atomic steps; and that the check notices broken ones."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.runtime.state_words import COMPLETE, IN_PROGRESS, NOT_STARTED, word
from tests.support.model_checker import ProtocolError, explore
from tests.support.state_protocol_model import WorkerMemory, WorkerProtocol, state_of

GRAPHS = {
    "chain": ((), (0,), (1,), (2,)),  # 0 ← 1 ← 2 ← 3
    "diamond": ((), (0,), (0,), (1, 2)),  # 0 ← 1, 0 ← 2, both ← 3
    "halo": ((), (), (), (0, 1), (0, 1, 2), (1, 2)),  # 3 bricks below, 3 above, each reading its neighbours
    "two chains": ((), (0,), (1,), (), (3,), (4,)),  # 0 ← 1 ← 2 and 3 ← 4 ← 5
}
CHAIN, HALO = GRAPHS["chain"], GRAPHS["halo"]


def shared_out(deps, queues=1, **options):
    """Tasks go to the queues in turn, in topological order."""
    return WorkerProtocol(deps, tuple(tuple(range(q, len(deps), queues)) for q in range(queues)), **options)


def complete(deps, epoch=1):
    return (word(epoch, COMPLETE),) * len(deps)


def test_words_of_older_epochs_are_not_started():
    assert [state_of(word(5, state), 5) for state in (NOT_STARTED, IN_PROGRESS, COMPLETE)] == [0, 1, 2]
    assert {state_of(word(4, state), 5) for state in (NOT_STARTED, IN_PROGRESS, COMPLETE)} == {NOT_STARTED}
    assert state_of(0, 1) == NOT_STARTED


@pytest.mark.parametrize("window", [0, 1, 4])
@pytest.mark.parametrize(("workers", "queues"), [(1, 1), (1, 3), (2, 1), (2, 2)])
@pytest.mark.parametrize("deps", GRAPHS.values(), ids=GRAPHS.keys())
def test_every_interleaving_computes_every_task_once_in_two_epochs(deps, workers, queues, window):
    """The second epoch starts from the words that the first one leaves. Workers may be fewer than queues."""
    first = explore(shared_out(deps, queues, window=window), workers)
    assert first.words == complete(deps)
    second = explore(shared_out(deps, queues, window=window, epoch=2), workers, first.words)
    assert second == (first.states, complete(deps, 2))


@pytest.mark.parametrize("deps", [CHAIN, GRAPHS["diamond"]], ids=["chain", "diamond"])
def test_every_interleaving_of_more_workers_than_queues(deps):
    assert explore(shared_out(deps, 2, window=1), 3).words == complete(deps)


@pytest.mark.parametrize("workers", [2, 3])
def test_a_task_in_two_queues_is_run_by_one_worker(workers):
    """0 ← 1"""
    assert explore(WorkerProtocol(((), (0,)), ((0, 1), (0, 1))), workers).words == complete(((), (0,)))


@st.composite
def small_graphs(draw):
    n = draw(st.integers(1, 5))
    return tuple(tuple(sorted(draw(st.sets(st.integers(0, k - 1), max_size=3)))) if k else () for k in range(n))


@settings(max_examples=40, deadline=None)
@given(small_graphs(), st.data(), st.integers(0, 3), st.integers(1, 3))
def test_any_small_graph_in_any_queues(deps, data, window, workers):
    homes = data.draw(st.lists(st.integers(0, 1), min_size=len(deps), max_size=len(deps)))
    queues = tuple(tuple(t for t, home in enumerate(homes) if home == q) for q in (0, 1))
    assert explore(WorkerProtocol(deps, queues, window=window), workers).words == complete(deps)


def test_workers_interleave():
    """The check is worth something only if it sees many states: more workers, more of them."""
    states = [explore(shared_out(HALO), workers).states for workers in (1, 2, 3)]
    assert states[0] < 100 < 1_000 < states[1] < 10_000 < states[2]


@dataclass(frozen=True)
class PublishesBeforeTheRun(WorkerProtocol):
    def acquire(self, shared, me):
        after, mine = super().acquire(shared, me)
        return (self.store(after, self.task(me), COMPLETE) if mine.step == "begin" else after), mine


@dataclass(frozen=True)
class StoresInsteadOfComparing(WorkerProtocol):
    def acquire(self, shared, me):
        return self.store(shared, self.task(me), IN_PROGRESS), me._replace(step="begin")


@dataclass(frozen=True)
class ReadsWhatIsInProgress(WorkerProtocol):
    def state(self, shared, task):
        state = super().state(shared, task)
        return COMPLETE if state == IN_PROGRESS else state


@dataclass(frozen=True)
class ForgetsTheEpoch(WorkerProtocol):
    def state(self, shared, task):
        return shared.words[task] % 4


@dataclass(frozen=True)
class ForgetsTasksThatAreNotReady(WorkerProtocol):
    """The head moves on with every look."""

    def go_on(self, me):
        queue = self.queue(me)
        return super().go_on(me._replace(heads=(*me.heads[:queue], me.slot + 1, *me.heads[queue + 1 :])))


@dataclass(frozen=True)
class NeverHelps(WorkerProtocol):
    """Stops at the end of its own queue."""

    def enter(self, me, distance):
        return WorkerMemory(me.home, me.heads, "stop") if distance else super().enter(me, 0)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (PublishesBeforeTheRun(CHAIN, ((0, 1, 2, 3),)), "begins before its dependencies have ended"),
        (StoresInsteadOfComparing(CHAIN, ((0, 1, 2, 3),)), "begins twice"),
        (ReadsWhatIsInProgress(CHAIN, ((0, 1, 2, 3),)), "begins before its dependencies have ended"),
        (ForgetsTheEpoch(CHAIN, ((0, 1, 2, 3),), epoch=2), "not complete"),
        (ForgetsTasksThatAreNotReady(CHAIN, ((0, 2), (1, 3))), "not complete"),
        (NeverHelps(CHAIN, ((0,), (1,), (2, 3))), "not complete"),
        (WorkerProtocol(CHAIN, ((3, 2, 1, 0),), window=1), "no worker can ever go on"),
        (WorkerProtocol(HALO, ((3, 4, 5, 0, 1, 2),), window=0), "no worker can ever go on"),
        (WorkerProtocol(CHAIN, ((0, 1), (3,))), "no worker can ever go on"),
        (WorkerProtocol(CHAIN, ((0, 1), (2,))), r"tasks \[3\] not complete"),
    ],
)
def test_broken_protocols_are_caught(broken, message):
    with pytest.raises(ProtocolError, match=message):
        explore(broken, 2, complete(broken.deps) if broken.epoch == 2 else ())


def test_the_error_tells_the_way_there():
    with pytest.raises(ProtocolError, match=r"begins before .*; after .*look 0.*begin 0"):
        explore(PublishesBeforeTheRun(((), (0,)), ((0, 1),)), 2)


def test_a_wide_enough_window_forgives_a_bad_order():
    """Queue 2 1 0 of the chain 0 ← 1 ← 2: the first ready task is two places beyond the head."""
    backwards = WorkerProtocol(CHAIN[:3], ((2, 1, 0),), window=2)
    assert explore(backwards, 1).words == complete(CHAIN[:3])
    with pytest.raises(ProtocolError, match="no worker can ever go on"):
        explore(replace(backwards, window=1), 1)
