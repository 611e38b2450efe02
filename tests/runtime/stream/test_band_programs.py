"""Programs that are made as bands come: the right one runs, and never more than some are there."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from weakref import WeakSet

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickrt.runtime.stream.band_programs import BandPrograms, Key


class FakeProgram:
    def __init__(self, key: Key) -> None:
        self.key = key


class FakeSeries:
    """Makes programs that know their keys, one call at a time, and knows the most that there were at a time."""

    def __init__(self, damaged: Key | None = None) -> None:
        self.damaged, self.made, self.most, self.calls = damaged, 0, 0, list[Iterable[Key]]()
        self.there, self.busy = WeakSet[FakeProgram](), threading.Lock()

    def make(self, keys: Iterable[Key], reserve: bool = True) -> list[FakeProgram]:
        assert self.busy.acquire(blocking=False), "asked by two threads at once"
        try:
            found = [FakeProgram(key) for key in keys]
            self.calls.append([one.key for one in found])
            if any(one.key == self.damaged for one in found):
                raise ValueError("damaged")
            for one in found:
                self.there.add(one)
            self.made += len(found)
            self.most = max(self.most, len(self.there))
            return found
        finally:
            self.busy.release()


def key(number: int) -> Key:
    return 0, number, frozenset()


def run(programs: BandPrograms, order: list[Key]) -> None:
    with programs.running():
        for place, wanted in enumerate(order):
            assert programs.at(place).key == wanted


@given(st.lists(st.integers(0, 7), max_size=40), st.sampled_from([None, 2, 3, 5]), st.integers(1, 2))
def test_the_right_program_runs_and_few_are_there(numbers: list[int], held: int | None, times: int):
    series, order = FakeSeries(), [key(number) for number in numbers]
    programs = BandPrograms(series, lambda one: one, held)
    assert programs.expect(order)
    for _ in range(times):
        run(programs, order)
    assert series.most <= (held or 8)
    assert series.made >= len(set(order)) and (held is not None or series.made == len(set(order)))


def test_what_comes_again_stays():
    """Bands that are alike between others that are not: their program is made once."""
    order = [key(number) for number in (0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5)]
    series = FakeSeries()
    programs = BandPrograms(series, lambda one: one, 3)
    programs.expect(order)
    run(programs, order)
    assert series.made == 6 and series.calls[0] == [key(0)]


def test_a_program_that_follows_is_made_while_one_runs():
    series, order = FakeSeries(), [key(number) for number in range(3)]
    programs = BandPrograms(series, lambda one: one, 2)
    programs.expect(order)
    assert series.made == 1
    with programs.running():
        programs.at(0)
        programs._ahead[1].result()
        assert series.made == 2
        programs.at(1)


@pytest.fixture
def second_fails() -> BandPrograms:
    """Two programs, of which the second one cannot be made."""
    programs = BandPrograms(FakeSeries(damaged=key(1)), lambda one: one, 2)
    programs.expect([key(0), key(1)])
    return programs


def test_an_error_is_raised_where_its_program_is_wanted(second_fails: BandPrograms):
    with second_fails.running():
        assert second_fails.at(0).key == key(0)
        with pytest.raises(ValueError, match="damaged"):
            second_fails.at(1)


def test_nothing_is_made_once_a_run_is_left(second_fails: BandPrograms):
    with second_fails.running():
        second_fails.at(0)
    assert second_fails._ahead is None and len(second_fails._series.calls) <= 2
    assert second_fails.at(0).key == key(0)


def test_other_work_is_taken_if_it_can_be_made():
    """Where all programs are held none is made later; of few at a time any are."""
    for held, taken in ((None, False), (2, True)):
        programs = BandPrograms(FakeSeries(), lambda one: one, held)
        assert programs.expect([key(0), key(1)])
        assert programs.expect([key(1)])
        assert programs.expect([key(1), key(2)]) is taken
        run(programs, [key(1), key(2)] if taken else [key(1)])
