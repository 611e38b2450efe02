"""Runs of CUDA programs on the host: arrays in place, callers' streams, events, cancelling, and what goes wrong."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto

from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.types import TensorType
from brickrt.plan.options import PlanOptions
from brickrt.runtime.cuda.blueprint import CudaOptions
from brickrt.runtime.cuda.program import CudaProgram
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.events import TaskEvents
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.program_protocol import Cancelled
from brickrt.runtime.session.runtime import Runtime
from tests.support.cuda.callback_kernels import CallbackDriver, use_callbacks
from tests.support.cuda.engines import runtime_on
from tests.support.cuda.host_kernels import needs_compiler
from tests.support.cuda.host_memory import HostArray
from tests.support.graphs.onnx_models import model, node, tensor

pytestmark = needs_compiler


@pytest.fixture(autouse=True)
def _callbacks(monkeypatch):
    use_callbacks(monkeypatch)


@pytest.fixture
def driver() -> CallbackDriver:
    return CallbackDriver()


def chain(layers: int = 2, size: int = 16):
    """x → 3×3 → … → y"""
    rng = np.random.default_rng(0)
    weights = {f"w{k}": (rng.standard_normal((3, 3, 3, 3)) / 4).astype(np.float32) for k in range(layers)}
    names = ["x", *(f"t{k}" for k in range(layers - 1)), "y"]
    nodes = [node("Conv", f"{names[k]} w{k}", names[k + 1], name=f"conv{k}", pads=[1] * 4) for k in range(layers)]
    return model(nodes, [tensor("x", (1, 3, size, size))], **weights)


def with_host_node():
    """x → Abs → NonZero (host) → Cast → Relu → y"""
    nodes = [
        node("Abs", "x", "a"),
        node("NonZero", "a", "i", name="count"),
        node("Cast", "i", "f", to=TensorProto.FLOAT),
        node("Relu", "f", "y"),
    ]
    return model(nodes, [tensor("x", (4,))])


def sample(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X = sample(1, 3, 16, 16)


def on_cpu(proto, x: np.ndarray = X) -> np.ndarray:
    return Runtime(proto, device="cpu", exact=True).execute({"x": x})["y"]


def check(y: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


# ---- arrays


@pytest.mark.parametrize("strategy", ["padded", "memoized"])
@pytest.mark.parametrize("launch", ["streams", "dynamic", "persistent"])
def test_arrays_on_the_device_are_used_in_place(monkeypatch, driver, launch, strategy):
    """Nothing but their addresses is copied."""
    proto = chain()
    runtime = runtime_on(monkeypatch, driver, proto, launch, strategy=strategy, brick=4)
    runtime.prepare({"x": X})
    for seed in (1, 2, 3):
        x = sample(1, 3, 16, 16, seed=seed)
        given = HostArray(x)
        driver.calls.clear()
        y = runtime.execute({"x": given})["y"]
        assert isinstance(y, HostArray)
        check(y.get(), on_cpu(proto, x))
        copied = [call[1] for call in driver.calls if call[0] in ("upload", "download", "copy")]
        assert copied == [3 * 8]
    driver.check()


@pytest.mark.parametrize("strategy", ["padded", "memoized"])
def test_a_run_with_the_arrays_of_the_last_one_is_one_launch(driver, strategy):
    """Not even the epoch of persistent kernels is told. On a caller's stream a mark for later runs comes behind it."""
    tasks, stream = lowered_chain(strategy), driver.stream()
    program = CudaProgram(tasks, driver, CudaOptions("persistent"))
    x, y = HostArray(X), HostArray(np.zeros_like(X))
    program.run([x], [y], stream=stream)
    for more, asked in (({}, ["graph"]), ({"stream": stream}, ["graph", "record"])):
        driver.calls.clear()
        program.run([x], [y], **more)
        assert [call[0] for call in driver.calls] == asked
    stream.synchronize()
    check(y.get(), on_cpu(chain()))


def test_arrays_of_the_host_go_through_pinned_memory(driver):
    """A copy in, a launch, a copy out."""
    program = CudaProgram(lowered_chain("memoized"), driver, CudaOptions("persistent"))
    for _ in range(3):
        y = np.zeros_like(X)
        driver.calls.clear()
        program.run([X], [y])
        check(y, on_cpu(chain()))
    assert driver.calls == [("copy", X.nbytes), ("graph", 1), ("copy", y.nbytes)]


def lowered_chain(strategy: str = "padded"):
    """The task graph of `chain`."""
    pipeline = Pipeline(choose_engine("reference"), PlanOptions(strategy, 4))  # type: ignore[arg-type]
    stage = first_stage(load(chain()))
    graph = pipeline.specialize(stage, {"x": TensorType(X.shape, X.dtype)}, {}).graph
    return pipeline.lower(pipeline.plan(graph))


def test_a_stream_of_the_caller(monkeypatch, driver):
    """The call returns before anything ran; what the caller does on the stream before and after is in order."""
    proto, stream = chain(), driver.stream()
    runtime = runtime_on(monkeypatch, driver, proto, strategy="memoized", brick=4)
    x, later = HostArray(np.zeros_like(X)), np.empty_like(X)
    driver.upload(driver.address(x), X, stream)
    y = runtime.execute({"x": x}, stream=stream)["y"]
    driver.download(later, driver.address(y), stream)
    assert (y.get() == 77).all()
    stream.synchronize()
    check(later, on_cpu(proto))
    check(y.get(), later)


def test_runs_on_several_streams_take_turns(monkeypatch, driver):
    """They share the arena, though nobody waits for the first before the second begins."""
    proto = chain()
    runtime = runtime_on(monkeypatch, driver, proto, strategy="layerwise")
    xs = [sample(1, 3, 16, 16, seed=k) for k in range(4)]
    streams = [driver.stream() for _ in xs]
    there = [HostArray(x) for x in xs]
    ys = [runtime.execute({"x": x}, stream=s)["y"] for x, s in zip(there, streams, strict=True)]
    for stream in streams:
        stream.synchronize()
    for x, y in zip(xs, ys, strict=True):
        check(y.get(), on_cpu(proto, x))


def test_host_nodes_get_values_from_the_device(monkeypatch, driver):
    x = np.array([1, 0, -2, 3], np.float32)
    for given, kind in ((x, np.ndarray), (HostArray(x), HostArray)):
        runtime = runtime_on(monkeypatch, driver, with_host_node())
        y = runtime.execute({"x": given})["y"]
        np.testing.assert_array_equal(y.get() if kind is HostArray else y, [[0, 2, 3]])
        assert list(runtime.fallback) == ["count"]


def test_arrays_of_a_gpu_on_other_devices():
    with pytest.raises(BrickError, match="input 'x' lies on a GPU: use device='cuda'"):
        Runtime(chain(), device="reference").execute({"x": HostArray(X)})
    with pytest.raises(BrickError, match="device 'reference' has no streams"):
        Runtime(chain(), device="reference").execute({"x": X}, stream=1)


def test_inputs_on_the_device_are_checked(monkeypatch, driver):
    runtime = runtime_on(monkeypatch, driver, chain())
    with pytest.raises(BrickError, match="dimension 3 must be 16"):
        runtime.execute({"x": HostArray(sample(1, 3, 16, 8))})
    with pytest.raises(BrickError, match="is float64"):
        runtime.execute({"x": HostArray(X.astype(np.float64))})


def test_an_empty_batch(monkeypatch, driver):
    nodes = [node("Relu", "x", "a"), node("Add", "a a", "y")]
    runtime = runtime_on(monkeypatch, driver, model(nodes, [tensor("x", ("N", 3))]))
    for n in (0, 2):
        x = sample(n, 3)
        np.testing.assert_array_equal(runtime.execute({"x": x})["y"], 2 * np.maximum(x, 0))


# ---- capture


def test_refused_captures_are_told_and_run_from_streams(monkeypatch, capsys):
    driver = CallbackDriver(captures=False)
    runtime = runtime_on(monkeypatch, driver, chain(), "graph")
    check(runtime.execute({"x": X})["y"], on_cpu(chain()))
    assert "no CUDA graph, launching from streams: this driver does not capture" in capsys.readouterr().err
    (program,) = runtime.plan.programs
    assert program.not_captured == "this driver does not capture"


# ---- events


@pytest.mark.parametrize("strategy", ["layerwise", "padded", "memoized"])
@pytest.mark.parametrize("launch", ["streams", "dynamic", "persistent"])
def test_events_tell_of_every_task(monkeypatch, driver, launch, strategy):
    seen: list[TaskEvents] = []
    runtime = runtime_on(monkeypatch, driver, chain(3), launch, group=5, strategy=strategy, brick=4, watch=seen.append)
    for _ in range(2):
        before = time.monotonic_ns()
        runtime.execute({"x": X})
        after = time.monotonic_ns()
        told = seen[-1]
        (program,) = runtime.plan.programs
        assert sorted(told.task.tolist()) == list(range(len(program.tasks)))
        assert (told.start <= told.end).all()
        assert (told.start >= before - 10**6).all() and (told.end <= after + 10**6).all()
        assert (told.worker >= 0).all() and (told.worker < program.threads).all()
        ends = dict(zip(told.task.tolist(), told.end.tolist(), strict=True))
        starts = dict(zip(told.task.tolist(), told.start.tolist(), strict=True))
        offsets = program.tasks.dep_offsets
        for t in range(len(program.tasks)):
            deps = program.tasks.deps[offsets[t] : offsets[t + 1]].tolist()
            assert all(ends[d] <= starts[t] for d in deps if d in starts)


# ---- cancelling, and what goes wrong


@pytest.mark.parametrize("launch", ["streams", "dynamic", "persistent"])
def test_cancel_before_and_while_it_runs(monkeypatch, launch):
    begun = threading.Event()

    class RecordingObserver:
        def began(self, tasks, rows):
            begun.set()

        def ended(self, tasks, events):
            pass

        def hosted(self, name, start, end):
            pass

    driver, proto = CallbackDriver(workers=1), chain(3)
    how = {"strategy": "memoized", "brick": 4, "watch": RecordingObserver()}
    runtime = runtime_on(monkeypatch, driver, proto, launch, **how)
    runtime.execute({"x": X})
    (program,) = runtime.plan.programs
    program.cancel()
    with pytest.raises(Cancelled):
        runtime.execute({"x": X})
    check(runtime.execute({"x": X})["y"], on_cpu(proto))
    begun.clear()
    other = threading.Thread(target=lambda: (begun.wait(), runtime.cancel()))
    other.start()
    for _ in range(200):
        try:
            runtime.execute({"x": X})
        except Cancelled:
            break
    else:
        pytest.fail("no run was cancelled")
    other.join()
    check(runtime.execute({"x": X})["y"], on_cpu(proto))


def test_a_hang_becomes_an_error_that_names_the_brick(driver, monkeypatch):
    """A task that waits for itself, as no task graph has it: the tables are spoilt after they were checked."""
    monkeypatch.setattr("brickrt.runtime.cuda.device_state.SPIN_LIMIT", 1 << 16)
    tasks = lowered_chain("memoized")
    program = CudaProgram(tasks, driver, CudaOptions("persistent"))
    offsets, deps = program._tables.dep_offsets, program._tables.deps.copy()
    waiting = int(np.flatnonzero(np.diff(offsets))[-1])
    deps[offsets[waiting]] = waiting
    program._memory.fill("deps", deps, program._main)
    y = np.zeros_like(X)
    pattern = r"task \d+ waited in vain for task \d+; task \d+ is node 'conv1', brick \[0:1, 0:3, \d+:\d+, \d+:\d+\]"
    with pytest.raises(BrickError, match=pattern):
        program.run([X], [y])
    program._memory.fill("deps", program._tables.deps, program._main)
    program.run([X], [y])
    check(y, on_cpu(chain()))


def test_a_hang_that_nobody_waited_for_is_told_by_the_next_run(driver, monkeypatch):
    monkeypatch.setattr("brickrt.runtime.cuda.device_state.SPIN_LIMIT", 1 << 16)
    program = CudaProgram(lowered_chain("memoized"), driver, CudaOptions("persistent"))
    tables, stream, x, y = program._tables, driver.stream(), HostArray(X), HostArray(np.zeros_like(X))
    deps = tables.deps.copy()
    waiting = int(np.flatnonzero(np.diff(tables.dep_offsets))[-1])
    deps[tables.dep_offsets[waiting]] = waiting
    for told_by in ({"stream": stream}, {}):
        program._memory.fill("deps", deps, stream)
        program.run([x], [y], stream=stream)
        program._memory.fill("deps", tables.deps, stream)
        if told_by:
            stream.synchronize()
        with pytest.raises(BrickError, match="waited in vain"):
            program.run([x], [y], **told_by)
        counts = program.run([x], [y])
        assert counts.complete_first + counts.waits + counts.revisits == counts.tasks == len(program.tasks)
        check(y.get(), on_cpu(chain()))


def test_runs_that_nobody_waited_for_are_not_counted_with_the_next(driver):
    program = CudaProgram(lowered_chain("memoized"), driver, CudaOptions("persistent"))
    x, y, stream = HostArray(X), HostArray(np.zeros_like(X)), driver.stream()
    for _ in range(20):
        program.run([x], [y], stream=stream)
    counts = program.run([x], [y])
    assert 0 <= counts.complete_first <= counts.tasks


def test_a_program_is_given_up_when_its_runs_have_ended(driver):
    program = CudaProgram(lowered_chain("memoized"), driver, CudaOptions("persistent"))
    x, y = HostArray(X), HostArray(np.zeros_like(X))
    program.run([x], [y], stream=driver.stream())
    del program
    check(y.get(), on_cpu(chain()))


def test_epochs_begin_anew(driver, monkeypatch):
    monkeypatch.setattr("brickrt.runtime.cuda.device_state.LAST_EPOCH", 3)
    program = CudaProgram(lowered_chain("memoized"), driver, CudaOptions("persistent"))
    y, want = np.empty_like(X), on_cpu(chain())
    for _ in range(8):
        y[:] = 0
        program.run([X], [y])
        check(y, want)


def test_what_records_have_no_room_for(monkeypatch, driver):
    names = [f"x{k}" for k in range(130)]
    arrays, inputs = {n: np.zeros(2, np.float32) for n in names}, [tensor(n, (2,)) for n in names]
    many = model([node("Relu", n, f"y{n}") for n in names], inputs, " ".join(f"y{n}" for n in names))
    with pytest.raises(BrickError, match="at most 253 inputs and outputs, not 260"):
        runtime_on(monkeypatch, driver, many).execute(arrays)
    deep = model([node("Relu", "x", "y", name="many")], [tensor("x", (2,) + (1,) * 16)])
    with pytest.raises(BrickError, match="node 'many': CUDA kernels take at most 64 tensors of"):
        runtime_on(monkeypatch, driver, deep).execute({"x": np.zeros((2,) + (1,) * 16, np.float32)})


def test_many_tensors_are_joined(monkeypatch, driver):
    names = [f"x{k}" for k in range(130)]
    arrays = {n: np.full(2, k, np.float32) for k, n in enumerate(names)}
    joined = model([node("Concat", " ".join(names), "y", axis=0)], [tensor(n, (2,)) for n in names])
    check(runtime_on(monkeypatch, driver, joined).execute(arrays)["y"], np.repeat(np.arange(130, dtype=np.float32), 2))


def test_several_callers(monkeypatch, driver):
    proto = chain()
    runtime = runtime_on(monkeypatch, driver, proto, strategy="memoized", brick=4)
    xs = [sample(1, 3, 16, 16, seed=k) for k in range(6)]
    found: dict[int, np.ndarray] = {}

    def call(k: int) -> None:
        found[k] = runtime.execute({"x": xs[k]})["y"]

    threads = [threading.Thread(target=call, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, x in enumerate(xs):
        check(found[k], on_cpu(proto, x))


def test_tables_are_validated(driver):
    tasks = lowered_chain("memoized")
    tasks.allocations["y"] = replace(tasks.allocations["y"], slot=-1, offset=4096)
    with pytest.raises(ValueError, match=r"box .* has its output at bytes 4096:6352 of base 3, not in 0:3072"):
        CudaProgram(tasks, driver, CudaOptions())


def test_memory_is_told(driver):
    program = CudaProgram(lowered_chain("padded"), driver, CudaOptions())
    assert program.constant_bytes >= 2 * 81 * 4
    assert program.working_bytes > program.tasks.arena_bytes
