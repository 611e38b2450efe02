"""The CUDA engine on the host, with kernels that call back: networks of the zoo, all strategies and ways to launch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.runtime.cuda.blueprint import CudaOptions
from brickrt.runtime.cuda.program import CudaProgram
from tests.support.cuda.callback_kernels import CallbackDriver, use_callbacks
from tests.support.cuda.engines import runtime_on
from tests.support.cuda.host_kernels import needs_compiler
from tests.support.cuda.zoo_runs import check_network, network
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.piece_graphs import pieces
from tests.support.graphs.plan_graphs import networks
from tests.support.task_checks import check_twice, lowered, with_values

pytestmark = needs_compiler

STRATEGIES = ["layerwise", "padded", "memoized", "auto"]
LAUNCHES = ["streams", "dynamic", "graph", "persistent"]
# networks in one strategy and way to launch, other ones than with kernels in test_networks.py
RUNS = {
    "inception-v4": ("padded", "graph"),
    "unet": ("memoized", "dynamic"),
    "vit-s16": ("padded", "dynamic"),
}
EVERY_WAY = [("nafnet", strategy, launch) for strategy in STRATEGIES for launch in LAUNCHES]


@pytest.fixture(autouse=True)
def _callbacks(monkeypatch):
    use_callbacks(monkeypatch)


@pytest.mark.parametrize(("name", "strategy", "launch"), EVERY_WAY)
def test_every_way(monkeypatch, name, strategy, launch):
    driver = CallbackDriver(seed=1)
    check_network(monkeypatch, name, driver, strategy, launch)
    assert ("graph" in {call[0] for call in driver.calls}) == (launch in ("graph", "persistent"))


@pytest.mark.parametrize("name", RUNS)
def test_zoo(monkeypatch, name):
    """The test above runs twice."""
    strategy, launch = RUNS[name]
    check_network(monkeypatch, name, CallbackDriver(), strategy, launch, brick=8, again=False)


@settings(max_examples=16, deadline=None)
@given(
    st.one_of(networks(), pieces()),
    st.sampled_from(STRATEGIES),
    st.sampled_from(LAUNCHES),
    st.sampled_from([1, 2, 3, 8]),
    st.sampled_from([None, 1, 3]),
    st.integers(0, 99),
)
def test_random_graphs(graph, strategy, launch, brick, band, seed):
    """Also swept in bands, in any order of streams."""
    graph, inputs = with_values(graph)
    want, driver = interpret(graph, inputs), CallbackDriver(seed=seed)
    tasks = lowered(graph, strategy, driver.spec, band, brick=brick)
    program = CudaProgram(tasks, driver, CudaOptions(launch, group=3))
    check_twice(program, graph, inputs, want)
    driver.check()


@pytest.mark.parametrize("strategy", ["padded", "memoized"])
def test_blocks_do_not_change_a_bit(monkeypatch, strategy):
    model, feeds, _ = network("nafnet")
    found = []
    for resident, workers in [(1, 1), (2, 2), (5, 3)]:
        driver = CallbackDriver(resident=resident, workers=workers, seed=resident)
        runtime = runtime_on(monkeypatch, driver, model, strategy=strategy, brick=2)
        found.append(runtime.execute(feeds)["y"])
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])
