import math

import pytest

from brickrt.compare.interleave import Spread, geometric_mean, ratios, turns
from brickrt.compare.peers import ComparedEngine


def test_every_engine_runs_twice_a_turn_in_changing_order():
    """One run of a turn is timed; the one before it is not, and belongs to the same engine."""
    calls: list[str] = []
    engines = [ComparedEngine(name, lambda name=name: calls.append(name) or []) for name in "abc"]
    times = turns(engines, 20, pause=0)
    assert {name: len(each) for name, each in times.items()} == {"a": 20, "b": 20, "c": 20}
    assert calls[::2] == calls[1::2] and len(calls) == 120
    orders = {tuple(calls[k : k + 6 : 2]) for k in range(0, 120, 6)}
    assert len(orders) > 2 and all(sorted(order) == list("abc") for order in orders)


def test_ratios_are_taken_turn_by_turn():
    times = {"ours": [1.0, 2.0, 4.0], "theirs": [3.0, 4.0, 4.0]}
    assert ratios(times, "ours") == {"theirs": Spread(2.0, 1.0, 3.0)}


def test_geometric_mean():
    assert geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)
    assert geometric_mean([]) is None
    assert math.isclose(geometric_mean([3.0]) or 0, 3.0)
