"""Programs whose launches start as others end: the same bits as otherwise, and what a caller's stream and a cancelled
run see of a host that takes part."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.runtime.cuda.blueprint import CudaOptions
from brickrt.runtime.cuda.program import CudaProgram
from brickrt.runtime.program_protocol import Cancelled
from brickrt.runtime.session.runtime import Runtime
from tests.runtime.cuda.test_runs import X, chain, check, lowered_chain, on_cpu, sample
from tests.support.cuda.callback_kernels import CallbackDriver, use_callbacks
from tests.support.cuda.engines import runtime_on
from tests.support.cuda.host_kernels import needs_compiler
from tests.support.cuda.host_memory import HostArray
from tests.support.cuda.zoo_runs import network

pytestmark = needs_compiler


@pytest.fixture(autouse=True)
def _callbacks(monkeypatch):
    use_callbacks(monkeypatch)


def dynamic(monkeypatch, driver, proto, strategy="memoized") -> Runtime:
    return runtime_on(monkeypatch, driver, proto, "dynamic", group=5, strategy=strategy, brick=4)


@pytest.mark.parametrize("strategy", ["padded", "memoized"])
def test_the_same_bits_whenever_launches_are_seen_to_have_ended(monkeypatch, strategy):
    """Also late, and out of order."""
    model, feeds, _ = network("nafnet")
    driver = CallbackDriver(seed=1)
    static = runtime_on(monkeypatch, driver, model, "streams", group=5, strategy=strategy, brick=4)
    want = static.execute(feeds)["y"]
    for seed, late in ((0, 0), (1, 7), (2, 99)):
        driver = CallbackDriver(seed=seed, late=late)
        runtime = dynamic(monkeypatch, driver, model, strategy)
        for _ in range(2):
            np.testing.assert_array_equal(runtime.execute(feeds)["y"], want)
        driver.check()


def orders(driver: CallbackDriver, program: CudaProgram, runs: int) -> set[tuple[int, ...]]:
    """In which orders launches started, by their first tasks."""
    found, y = set(), np.zeros_like(X)
    for _ in range(runs):
        driver.calls.clear()
        program.run([X], [y])
        found.add(tuple(call[3] for call in driver.calls if call[0] == "launch"))
    return found


def test_what_ends_first_decides_what_starts_next():
    driver = CallbackDriver()
    tasks = lowered_chain("memoized")
    assert len(orders(driver, CudaProgram(tasks, driver, CudaOptions("streams", group=3)), 5)) == 1
    assert len(orders(driver, CudaProgram(tasks, driver, CudaOptions("dynamic", group=3)), 5)) > 1


def test_a_callers_stream(monkeypatch):
    """The call returns when all launches are on streams; the rest is ordered by the caller's, as in other ways."""
    driver = CallbackDriver(late=3)
    runtime = dynamic(monkeypatch, driver, chain(3))
    streams = [driver.stream() for _ in range(4)]
    xs = [sample(1, 3, 16, 16, seed=k) for k in range(len(streams))]
    ys = []
    for x, stream in zip(xs, streams, strict=True):
        given = HostArray(np.zeros_like(x))
        driver.upload(driver.address(given), x, stream)
        ys.append(runtime.execute({"x": given}, stream=stream)["y"])
    for stream in streams:
        stream.synchronize()
    for x, y in zip(xs, ys, strict=True):
        check(y.get(), on_cpu(chain(3), x))
    driver.check()


def test_it_is_measured_like_others():
    """The whole with the host's part in it, a subgraph by itself."""
    driver = CallbackDriver()
    program = CudaProgram(lowered_chain("memoized"), driver, CudaOptions("dynamic", group=3))
    y = np.zeros_like(X)
    program.run([X], [y])
    launches = [call for call in driver.calls if call[0] == "launch"]
    assert len(launches) == len(program._launches)
    assert program.seconds() > len(launches) and program.seconds({0}) > 0
    program.run([X], [y])
    check(y, on_cpu(chain()))


def begun_since_cancelled(program: CudaProgram) -> set[int]:
    """How often launches have begun, as faults count it: those that a cancelled run left out are not behind."""
    return set((program._memory.begun - program._marks._base).tolist())


@pytest.mark.parametrize("waits", [True, False])
def test_cancelled_in_the_middle_no_more_starts(waits):
    """And what has started ends. Where nobody waited the next run tells."""

    class Cancelling(CallbackDriver):
        at = -1

        def seen(self) -> int:
            return sum(call[0] == "launch" for call in self.calls)

        def event(self):
            event = super().event()
            query = event.query

            def cancelling() -> bool:
                if self.at >= 0 and self.seen() >= self.at:
                    self.at = -1
                    program.cancel()
                return query()

            event.query = cancelling
            return event

    driver = Cancelling()
    program = CudaProgram(lowered_chain("memoized"), driver, CudaOptions("dynamic", group=1))
    x, y, stream = HostArray(X), HostArray(np.zeros_like(X)), driver.stream()
    driver.calls.clear()
    driver.at = 6
    if waits:
        with pytest.raises(Cancelled):
            program.run([x], [y])
    else:
        program.run([x], [y], stream=stream)
        stream.synchronize()
    assert 6 <= driver.seen() < len(program._launches) and not any(stream.queue for stream in driver.streams)
    if not waits:
        with pytest.raises(Cancelled):
            program.run([x], [y])
    program.run([x], [y])
    check(y.get(), on_cpu(chain()))
    assert begun_since_cancelled(program) == {1}
