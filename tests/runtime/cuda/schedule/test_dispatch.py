"""Launches that start as others end, on streams whose work ends in any order and is seen to have ended late."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickrt.runtime.cuda.schedule import dispatch
from brickrt.runtime.cuda.schedule.dispatch import LOOKS, Dispatcher
from brickrt.runtime.cuda.schedule.ready_queue import DEPTH
from tests.runtime.cuda.schedule.test_stream_schedule import waits
from tests.support.cuda.host_driver import HostDriver

CASE = waits(), st.integers(1, 5), st.integers(0, 99), st.sampled_from([0, 3, LOOKS + 9])


class Launches:
    """What a dispatcher puts on the streams of a driver."""

    def __init__(self, after: Sequence[Sequence[int]], streams: int, seed: int = 0, late: int = 0) -> None:
        self.driver = HostDriver(seed=seed, late=late)
        self.streams = [self.driver.stream() for _ in range(streams)]
        self.dispatcher = Dispatcher(self.driver, after, streams)
        self.after, self.put, self.ran = after, list[tuple[int, int]](), list[int]()
        self.fails_at = -1

    def run(self, stopped: Callable[[], bool] = lambda: False) -> None:
        self.put, self.ran = [], []
        self.dispatcher.run(self._put, self.streams, stopped)

    def _put(self, k: int, stream: int) -> None:
        if len(self.put) == self.fails_at:
            raise KeyboardInterrupt
        self.put.append((k, stream))
        self.streams[stream].put(lambda: self.ran.append(k))
        under_way = [s for k, s in self.put if k not in self.ran]
        assert under_way.count(stream) <= DEPTH

    def check(self) -> None:
        """What was put has run, each once, after what it comes after."""
        assert sorted(self.ran) == sorted(k for k, _ in self.put)
        for i, k in enumerate(self.ran):
            assert set(self.after[k]) <= set(self.ran[:i])
        assert len(set(self.ran)) == len(self.ran)


@given(*CASE)
def test_all_run_once_and_in_time(after, streams, seed, late):
    """When the first stream is done all is, though the host has not waited for the last ones."""
    launches = Launches(after, streams, seed, late)
    for _ in range(2):
        launches.run()
        launches.streams[0].synchronize()
        launches.check()
        assert len(launches.ran) == len(after)


@given(*CASE, st.integers(0, 14))
def test_what_has_started_when_a_run_is_stopped_ends(after, streams, seed, late, most):
    """And no more starts than was about to; the next run is a whole one."""
    launches = Launches(after, streams, seed, late)
    launches.run(lambda: len(launches.put) >= most)
    launches.streams[0].synchronize()
    launches.check()
    assert len(launches.ran) <= max(0, most - 1 + DEPTH * streams) and (most or not launches.ran)
    launches.run()
    launches.streams[0].synchronize()
    launches.check()
    assert len(launches.ran) == len(after)


@given(*CASE, st.integers(0, 14))
def test_nothing_is_under_way_after_an_interrupt(after, streams, seed, late, fails_at):
    launches = Launches(after, streams, seed, late)
    launches.fails_at = fails_at
    if fails_at < len(after):
        with pytest.raises(KeyboardInterrupt):
            launches.run()
    else:
        launches.run()
        launches.streams[0].synchronize()
    launches.check()
    launches.fails_at = -1
    launches.run()
    launches.streams[0].synchronize()
    launches.check()


def test_the_host_sleeps_between_looks_after_many_in_vain(monkeypatch):
    naps = list[float]()
    monkeypatch.setattr(dispatch.time, "sleep", naps.append)
    launches = Launches([(), (), (0, 1), (0, 1, 2)], 2, late=10 * LOOKS)
    launches.run()
    launches.streams[0].synchronize()
    launches.check()
    assert set(naps) == {dispatch.NAP}
