"""Networks of the zoo at their smallest sizes on a driver, compared with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from brickrt.runtime.session.runtime import Runtime
from tests.support import zoo_networks
from tests.support.cuda.engines import runtime_on
from tests.support.cuda.host_driver import HostDriver
from tests.support.zoo_networks import SMALLEST

SIZES = SMALLEST | {"vit-s16": 32}


def network(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray], np.ndarray]:
    """Model, inputs, and what ONNX Runtime computes."""
    return *zoo_networks.network(name, SIZES[name]), zoo_networks.expected(name, SIZES[name])


def check_network(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    driver: HostDriver,
    strategy: str,
    launch: str,
    brick: int = 4,
    again: bool = True,
) -> Runtime:
    """Runs a network, and `again` with the same bits, and compares."""
    model, feeds, want = network(name)
    edge = None if strategy == "auto" else brick
    runtime = runtime_on(monkeypatch, driver, model, launch, group=7, strategy=strategy, brick=edge)
    first = runtime.execute(feeds)["y"]
    assert (first.shape, first.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(first, want, rtol=0, atol=1e-4 * np.abs(want).max())
    if again:
        np.testing.assert_array_equal(runtime.execute(feeds)["y"], first)
    driver.check()
    stats = runtime.stats
    assert stats.complete_first + stats.waits + stats.revisits == stats.tasks
    assert stats.tasks == sum(len(program.tasks) for program in runtime.plan.programs)
    return runtime
