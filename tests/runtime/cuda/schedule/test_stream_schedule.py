"""Launches on streams: whatever order streams run in, each launch comes after what it waits for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from brickrt.runtime.cuda.schedule.stream_schedule import Schedule, schedule


@st.composite
def waits(draw: st.DrawFn) -> list[tuple[int, ...]]:
    n = draw(st.integers(0, 14))
    return [tuple(sorted(draw(st.sets(st.integers(0, k - 1), max_size=3)))) if k else () for k in range(n)]


def before(found: Schedule) -> list[set[int]]:
    """Per launch, those that streams and events put before it."""
    reached: list[set[int]] = []
    last: dict[int, int] = {}
    for k, turn in enumerate(found.turns):
        mine = {d for other in (*turn.waits, last.get(turn.stream, -1)) if other >= 0 for d in (other, *reached[other])}
        reached.append(mine)
        last[turn.stream] = k
    return reached


@given(waits(), st.integers(1, 5))
def test_streams_keep_the_order(after, streams):
    found = schedule(after, streams)
    assert found.streams <= streams
    for needs, mine in zip(after, before(found), strict=True):
        assert set(needs) <= mine
    awaited = {d for turn in found.turns for d in turn.waits} | set(found.tails)
    assert awaited == {k for k, turn in enumerate(found.turns) if turn.recorded}
    last = {turn.stream: k for k, turn in enumerate(found.turns)}
    assert found.tails == tuple(last[s] for s in range(1, found.streams))


@given(waits(), st.integers(1, 5))
def test_no_event_says_what_streams_say(after, streams):
    """Without any one of the waits, something would not be ordered."""
    found = schedule(after, streams)
    for k, turn in enumerate(found.turns):
        previous = max((j for j in range(k) if found.turns[j].stream == turn.stream), default=-1)
        reached = before(found)
        implied = {previous, *reached[previous]} if previous >= 0 else set()
        assert not implied & set(turn.waits)


def test_a_chain_needs_no_events_and_branches_run_side_by_side():
    """
    0 → 1 → 2        0 → 1 ─→ 3
                       └ 2 ─┘
    """
    chain = schedule([(), (0,), (1,)], 4)
    assert (chain.streams, chain.tails) == (1, ())
    assert not any(turn.waits or turn.recorded for turn in chain.turns)
    diamond = schedule([(), (0,), (0,), (1, 2)], 4)
    assert diamond.turns[1].stream != diamond.turns[2].stream
    assert sum(len(turn.waits) for turn in diamond.turns) == 2
