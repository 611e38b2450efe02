"""The ready queue: whatever ends first, each launch starts once, in time, and the earliest of those that may."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from brickrt.runtime.cuda.schedule.ready_queue import DEPTH, ReadyQueue
from tests.runtime.cuda.schedule.test_stream_schedule import waits

STREAMS = st.integers(1, 5)


def expected(
    after: Sequence[Sequence[int]], held: Sequence[Sequence[int]], complete: set[int], started: Sequence[int]
) -> tuple[int, int] | None:
    """What should start, found by looking at all launches and streams."""
    left = [k for k in range(len(after)) if k not in started]
    for load in range(DEPTH):
        may = [
            (k, *mine, s)
            for s, mine in enumerate(held)
            for k in left
            if len(mine) == load and complete.union(mine).issuperset(after[k])
        ]
        if may:
            k, *_, stream = min(may)
            return k, stream
    return None


@given(waits(), STREAMS, st.randoms())
def test_any_order_of_ends(after, streams, random):
    queue = ReadyQueue(after, streams)
    for _ in range(2):
        held: list[list[int]] = [[] for _ in range(streams)]
        complete, started = set[int](), list[int]()
        while queue.left or any(held):
            busy = [s for s, mine in enumerate(held) if mine]
            if not busy or random.random() < 0.6:
                found = queue.take()
                assert found == expected(after, held, complete, started)
                assert found or busy, "nothing is under way, and nothing starts"
                if found:
                    held[found[1]].append(found[0])
                    started.append(found[0])
                    continue
            stream = random.choice(busy)
            queue.complete(stream)
            complete.add(held[stream].pop(0))
        assert sorted(started) == list(range(len(after))) and queue.take() is None
        queue.begin()


def taken(queue: ReadyQueue) -> list[tuple[int, int]]:
    return list(iter(queue.take, None))


def test_a_launch_follows_on_the_stream_that_has_all_it_comes_after():
    """
    0 → 1 → 3, 2 → 3
    """
    queue = ReadyQueue([(), (0,), (), (1, 2)], 2)
    assert taken(queue) == [(0, 0), (2, 1), (1, 0)]
    queue.complete(1)
    assert taken(queue) == []  # stream 0 is full
    queue.complete(0)
    assert taken(queue) == [(3, 0)]


def test_a_launch_that_two_streams_hold_up_starts_when_one_of_them_is_done():
    queue = ReadyQueue([(), (), (0, 1)], 3)
    assert taken(queue) == [(0, 0), (1, 1)]
    queue.complete(0)
    assert taken(queue) == [(2, 1)]


def test_the_earliest_goes_first_and_idle_streams_before_others():
    queue = ReadyQueue([(), (0,), (0,), (), ()], 2)
    assert taken(queue) == [(0, 0), (3, 1), (1, 0), (4, 1)]
    queue.complete(1)
    assert taken(queue) == []  # 2 comes after 0, which is on the other stream
    queue.complete(0)
    assert taken(queue) == [(2, 0)]


def test_a_chain_stays_on_one_stream():
    queue = ReadyQueue([(), (0,), (1,), (2,)], 4)
    found = taken(queue)
    while queue.left:
        queue.complete(0)
        found += taken(queue)
    assert found == [(k, 0) for k in range(4)]
