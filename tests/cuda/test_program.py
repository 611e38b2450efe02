"""The CUDA engine on the host, with kernels that call back: networks of the zoo, all strategies and ways to launch."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import onnxruntime
import pytest
from callback_kernels import CallbackDriver, use_callbacks
from engines import runtime_on
from host_kernels import needs_compiler
from hypothesis import given, settings
from hypothesis import strategies as st
from piece_graphs import pieces
from plan_graphs import networks
from task_checks import lowered, with_values

from brickrt import zoo
from brickrt.graph.interpret import interpret
from brickrt.runtime.cuda.program import CudaOptions, CudaProgram
from brickrt.runtime.runtime import Runtime

pytestmark = needs_compiler

SIZES = {
    "darknet53": 32,
    "deepcam": (32, 48),
    "drn-c-26": 32,
    "inception-v4": 75,
    "mobilenetv2": 32,
    "nafnet": 8,
    "resnet34-3d": (8, 32, 32),
    "resnet50": 32,
    "unet": 16,
    "unet3d": 16,
    "vgg16": 32,
    "vit-s16": 32,
}
STRATEGIES = ["layerwise", "padded", "memoized", "auto"]
LAUNCHES = ["streams", "graph", "persistent"]
SMALL_ONES = ["nafnet", "mobilenetv2"]


@pytest.fixture(autouse=True)
def _callbacks(monkeypatch):
    use_callbacks(monkeypatch)


@cache
def network(name: str) -> tuple[onnx.ModelProto, np.ndarray, np.ndarray]:
    """Model, input, and what ONNX Runtime computes."""
    model = zoo.build(name, size=SIZES[name])
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return model, x, session.run(None, {"x": x})[0]


def run(monkeypatch, name: str, driver: CallbackDriver, strategy: str, launch: str, brick: int = 4) -> Runtime:
    """Runs a network twice and compares."""
    model, x, want = network(name)
    edge = None if strategy == "auto" else brick
    runtime = runtime_on(monkeypatch, driver, model, launch, group=7, strategy=strategy, brick=edge)
    first = runtime.execute({"x": x})["y"]
    assert (first.shape, first.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(first, want, rtol=0, atol=1e-4 * np.abs(want).max())
    np.testing.assert_array_equal(runtime.execute({"x": x})["y"], first)
    driver.check()
    stats = runtime.stats
    assert stats.complete_first + stats.waits + stats.revisits == stats.tasks
    assert stats.tasks == sum(len(program.tasks) for program in runtime.plan.programs)
    return runtime


@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", SMALL_ONES)
def test_every_way(monkeypatch, name, strategy, launch):
    driver = CallbackDriver(seed=1)
    run(monkeypatch, name, driver, strategy, launch)
    assert ("graph" in {call[0] for call in driver.calls}) == (launch != "streams")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", [name for name in SIZES if name not in SMALL_ONES])
def test_zoo(monkeypatch, name, strategy):
    """Each network and strategy in one of the ways."""
    launch = LAUNCHES[(list(SIZES).index(name) + STRATEGIES.index(strategy)) % len(LAUNCHES)]
    run(monkeypatch, name, CallbackDriver(), strategy, launch, brick=8)


@settings(max_examples=25, deadline=None)
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
    for _ in range(2):
        outputs = [np.full(graph.types[name].shape, np.nan, np.float32) for name in graph.outputs]
        program.run([inputs[name] for name in graph.inputs], outputs)
        for name, array in zip(graph.outputs, outputs, strict=True):
            np.testing.assert_allclose(array, want[name], rtol=0, atol=1e-4 * max(1, np.abs(want[name]).max()))
    driver.check()


@pytest.mark.parametrize("strategy", ["padded", "memoized"])
def test_blocks_do_not_change_a_bit(monkeypatch, strategy):
    model, x, _ = network("nafnet")
    found = []
    for resident, workers in [(1, 1), (2, 2), (5, 3)]:
        driver = CallbackDriver(resident=resident, workers=workers, seed=resident)
        runtime = runtime_on(monkeypatch, driver, model, strategy=strategy, brick=2)
        found.append(runtime.execute({"x": x})["y"])
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])
