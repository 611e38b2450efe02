"""Which launches were running: against random runs that end at any moment."""

from __future__ import annotations

import random

import numpy as np
import pytest

from brickrt.runtime.cuda.launch_marks import LaunchMarks, by_schedule
from brickrt.runtime.cuda.schedule.stream_schedule import Schedule, Turn, schedule

CHAIN = schedule([(), (0,), (1,), (2,)], 4)


def marks_of(begun, marked=(True, True, True, True), of=CHAIN):
    """Marks in a run of which so much was told, after `put` runs."""
    words = np.zeros(len(begun), np.uint64)
    marks = LaunchMarks(words, marked, by_schedule(of))
    marks.put()
    words += np.array(begun, np.uint64)
    return marks


def test_the_last_that_began_was_running():
    assert marks_of([1, 1, 0, 0]).running() == [1]
    assert marks_of([1, 1, 1, 1]).running() == [3]
    assert marks_of([0, 0, 0, 0]).running() == []


def test_calls_may_have_been_running_between_what_tells():
    marked = (True, False, False, True)
    assert marks_of([1, 0, 0, 0], marked).running() == [0, 1, 2]
    assert marks_of([1, 0, 0, 1], marked).running() == [3]
    assert marks_of([0, 0, 0, 0], marked).running() == []
    assert marks_of([0, 0, 0, 0], (False,) * 4).running() == [0, 1, 2, 3]


def test_several_runs_on_their_way():
    marks = marks_of([2, 2, 1, 1])
    marks.put()
    marks.put()
    assert marks.running() == [1]
    between = marks_of([1, 1, 1, 1], (False, True, True, True))
    between.put()
    assert between.running() == [3, 0]
    between.end()
    assert not between.under_way


def test_launches_alone():
    """They run in their order, again and again; then whole runs are counted anew."""
    marks = marks_of([1, 1, 1, 1])
    marks.end()
    with marks.alone([1, 3]):
        assert marks.under_way and marks.running() == []
        marks._begun[1] += np.uint64(5)
        marks._begun[3] += np.uint64(4)
        assert marks.running() == [1]
        marks._begun[3] += np.uint64(1)
        assert marks.running() == [3]
    marks.put()
    marks._begun[:2] += np.uint64(1)
    assert marks.running() == [1]


def test_an_interrupt_of_launches_alone():
    """What comes later is told apart again, once all has ended."""
    marks = marks_of([1, 1, 1, 1])
    marks.end()
    with pytest.raises(KeyboardInterrupt), marks.alone([1, 3]):
        marks._begun[1] += np.uint64(1)
        raise KeyboardInterrupt
    marks.end()
    marks.put()
    marks._begun[:3] += np.uint64(1)
    assert marks.running() == [2]


def test_a_run_that_was_not_put_as_a_whole():
    marks = marks_of([1, 1, 0, 0])
    marks.spoil()
    marks.end()
    marks.put()
    marks._begun[0] += np.uint64(1)
    assert marks.running() == [0]


@pytest.mark.parametrize("seed", range(100))
def test_random_runs(seed):
    """What was running is found. What had not begun, or had ended for certain, is not told."""
    chance = random.Random(seed)
    count = chance.randint(1, 12)
    after = [sorted(chance.sample(range(k), min(k, chance.randint(0, 2)))) for k in range(count)]
    turns, marked = schedule(after, 3), [chance.random() < 0.7 for _ in range(count)]
    before = _order(turns)
    ended: set[int] = set()
    for _ in range(chance.randint(0, count)):
        able = [k for k in range(count) if k not in ended and before[k] <= ended]
        ended.add(chance.choice(able))
    running = {k for k in range(count) if k not in ended and before[k] <= ended and chance.random() < 0.7}
    begun = [int(marked[k] and k in ended | running) for k in range(count)]
    if not any(begun):
        assert running <= set(marks_of(begun, marked, turns).running())
        return
    found = set(marks_of(begun, marked, turns).running())
    assert running <= found
    certain = {d for k in range(count) if begun[k] for d in before[k]}
    assert not found & certain and all(begun[k] or not marked[k] for k in found)


def _order(turns: Schedule) -> list[set[int]]:
    """All that comes before each launch."""
    found: list[set[int]] = []
    last: dict[int, int] = {}
    turn: Turn
    for k, turn in enumerate(turns.turns):
        direct = {*turn.waits, *([last[turn.stream]] if turn.stream in last else [])}
        found.append(direct.union(*(found[d] for d in direct)))
        last[turn.stream] = k
    return found
