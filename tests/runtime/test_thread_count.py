"""How many threads run by default."""

from __future__ import annotations

import pytest

from brickrt.graph.errors import BrickError
from brickrt.runtime import thread_count as counting
from brickrt.runtime.thread_count import MOST_THREADS, thread_count, usable_cores


@pytest.mark.parametrize(
    ("text", "expected"), [("", 6), ("3", 3), ("2,4", 2), (" 1 ", 1), ("64", 6), ("0", 6), ("many", 6), ("-1", 6)]
)
def test_the_environment_may_ask_for_fewer(text, expected, monkeypatch):
    monkeypatch.setattr(counting, "usable_cores", lambda: 6)
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert thread_count(None) == expected
    assert thread_count(64) == 64


def test_a_quota_leaves_fewer_cores(monkeypatch):
    monkeypatch.setattr(counting, "cpu_limit", lambda: 1)
    assert usable_cores() == 1
    monkeypatch.setattr(counting, "cpu_limit", lambda: 10_000)
    assert 1 <= usable_cores() < 10_000


@pytest.mark.parametrize("threads", [0, -1, MOST_THREADS + 1, True, 1.5, "2"])
def test_impossible_numbers_are_refused(threads):
    with pytest.raises(BrickError, match="whole number from 1 to"):
        thread_count(threads)
