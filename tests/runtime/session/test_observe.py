"""Runs told of while they go on, and runs cancelled."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from brickrt import Runtime
from brickrt.runtime import events
from brickrt.runtime.events import TaskEvents
from brickrt.runtime.lowering.task_graph import TaskGraph
from brickrt.runtime.program_protocol import Cancelled
from tests.support.graphs.onnx_models import model, node, tensor


class Log:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple] = []

    def began(self, tasks: TaskGraph, rows: Sequence[np.ndarray]) -> None:
        self.told.append(("began", tasks, sum(events.used(r) for r in rows)))

    def ended(self, tasks: TaskGraph, seen: TaskEvents) -> None:
        self.told.append(("ended", tasks, seen))

    def hosted(self, name: str, start: int, end: int) -> None:
        self.told.append(("hosted", name, start, end))


def chain() -> onnx.ModelProto:
    """x → 3×3 → 3×3 → y"""
    rng = np.random.default_rng(0)
    weights = {n: rng.standard_normal((3, 3, 3, 3)).astype(np.float32) for n in "wv"}
    pads = [1, 1, 1, 1]
    nodes = [node("Conv", "x w", "a", pads=pads), node("Conv", "a v", "y", pads=pads)]
    return model(nodes, [tensor("x", (1, 3, 16, 16))], **weights)


def with_host_node() -> onnx.ModelProto:
    """x → Abs → NonZero (host) → Cast → Relu → y"""
    nodes = [
        node("Abs", "x", "a"),
        node("NonZero", "a", "i", name="count"),
        node("Cast", "i", "f", to=TensorProto.FLOAT),
        node("Relu", "f", "y"),
    ]
    return model(nodes, [tensor("x", (4,))])


X = {"x": np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)}


@pytest.mark.parametrize("device", ["cpu", "reference", "null"])
def test_an_observer_is_told_before_and_after(device):
    log = Log()
    runtime = Runtime(chain(), device=device, threads=2, strategy="memoized", brick=4, watch=log)
    before = time.monotonic_ns()
    runtime.execute(X)
    (_, tasks, used), (_, same, seen) = log.told
    assert used == 0 and tasks is same
    assert sorted(seen.task.tolist()) == list(range(len(tasks)))
    assert before <= seen.start.min() and (seen.start <= seen.end).all() and seen.end.max() <= time.monotonic_ns()


def test_host_nodes_are_told_of_on_the_same_clock_and_timed():
    log = Log()
    runtime = Runtime(with_host_node(), watch=log)
    runtime.execute({"x": np.array([0, 1, 0, 2], np.float32)})
    assert [entry[0] for entry in log.told][:4] == ["began", "ended", "hosted", "hosted"]
    (_, name, start, none), (_, again, same, end) = (entry for entry in log.told if entry[0] == "hosted")
    assert name == again == "count" and start == same and none == 0
    assert log.told[1][2].end.max() <= start <= end
    assert list(runtime.stats.host_nodes) == ["count"] == list(runtime.fallback)
    assert 0 < runtime.stats.host_nodes["count"] <= runtime.stats.host_ms


class Impatient(Log):
    """Cancels the first run that begins."""

    def began(self, tasks: TaskGraph, rows: Sequence[np.ndarray]) -> None:
        super().began(tasks, rows)
        if len(self.told) == 1:
            self.runtime.cancel()


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_cancelled_runs_raise_and_the_next_one_is_whole(device):
    log = Impatient()
    proto = chain()
    log.runtime = Runtime(proto, device=device, threads=2, strategy="memoized", brick=4, watch=log)
    with pytest.raises(Cancelled):
        log.runtime.execute(X)
    assert [entry[0] for entry in log.told] == ["began"]
    expected = Runtime(proto, device="reference").execute(X)
    for name, value in log.runtime.execute(X).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-4)


def test_cancelling_when_nothing_runs_does_nothing():
    runtime = Runtime(chain(), threads=2)
    runtime.cancel()
    runtime.execute(X)
