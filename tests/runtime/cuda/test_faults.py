"""Faults of the device and memory that runs out: errors name node, kernel, bricks and purposes, and nothing hangs."""

from __future__ import annotations

import gc
import re
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.types import TensorType
from brickrt.plan.options import PlanOptions
from brickrt.runtime.cuda.blueprint import CudaOptions
from brickrt.runtime.cuda.driver.cudnn_plans import Plans
from brickrt.runtime.cuda.driver.device_errors import DeviceError, NoMemory
from brickrt.runtime.cuda.program import CudaProgram
from brickrt.runtime.engines import planner
from brickrt.runtime.pipeline import Pipeline
from tests.runtime.cuda.test_runs import X, chain, check, on_cpu
from tests.support.cuda.callback_kernels import CallbackDriver, use_callbacks
from tests.support.cuda.host_driver import SMALL
from tests.support.cuda.host_kernels import needs_compiler
from tests.support.cuda.host_memory import HostArray
from tests.support.cudnn.fake_cudnn import Frontend, HostLibrary, PlanOf
from tests.support.graphs.onnx_models import model, node, tensor

pytestmark = needs_compiler

REASON = "cudaErrorIllegalAddress: an illegal memory access was encountered"
NODES = "in nodes 'x→last' (Reorder), 'conv0' (Conv), 'conv1' (Conv), 'y:last→plain' (Reorder)"
HINT = "; set BRICKRT_CHECKED=1 to learn the brick"
BRICK = r"\[0:1, 0:3, \d+:\d+, \d+:\d+\]"


@pytest.fixture(autouse=True)
def _callbacks(monkeypatch, tmp_path):
    use_callbacks(monkeypatch)
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("BRICKRT_CHECKED", raising=False)


@pytest.fixture
def driver() -> CallbackDriver:
    return CallbackDriver()


def fault_of(program, x=X, y=None, **more) -> str:
    """What a run's error says. Later ones say so at once, and so do new programs."""
    driver = program._driver
    with pytest.raises(BrickError) as told:
        program.run([x], [np.zeros_like(X) if y is None else y], **more)
    driver.calls.clear()
    again = "the GPU took a fault and cannot be used any more in this process: start a new one"
    for use in (lambda: program.run([X], [np.zeros_like(X)]), program.seconds, lambda: made(driver, program.tasks)):
        with pytest.raises(BrickError, match=again) as later:
            use()
        assert str(told.value) in str(later.value)
    program.cancel()
    assert not driver.calls and "\n" not in str(told.value)
    return str(told.value)


def lowered(proto, strategy="memoized"):
    pipeline = Pipeline(planner(SMALL), PlanOptions(strategy, 4))
    graph = pipeline.specialize(first_stage(load(proto)), {"x": TensorType(X.shape, X.dtype)}, {}).graph
    return pipeline.lower(pipeline.plan(graph))


def made(driver, tasks=None, launch="persistent", strategy="memoized"):
    return CudaProgram(tasks or lowered(chain(), strategy), driver, CudaOptions(launch))


def branches():
    """x → a, x → b → c, a + c → y, where b and c are deeper"""
    rng = np.random.default_rng(0)
    weights = {f"w{k}": (rng.standard_normal((3, 3, 3, 3)) / 4).astype(np.float32) for k in "abc"}
    convs = [node("Conv", f"{x} w{k}", k, name=k, pads=[1] * 4) for x, k in ("xa", "xb", "bc")]
    sigmoids = [node("Softmax", k, f"s{k}", name=f"s{k}", axis=-1) for k in "ac"]
    return model([*convs, *sigmoids, node("Add", "sa sc", "y", name="sum")], [tensor("x", X.shape)], **weights)


def nth(number, op="Conv"):
    """Strikes as the box of this number, of those that such an operator computes from now on, begins."""
    numbers = count()
    return lambda kernel, lo: kernel.op.name == op and next(numbers) == number


@pytest.mark.parametrize("strategy", ["layerwise", "padded", "memoized"])
@pytest.mark.parametrize("launch", ["streams", "persistent"])
def test_every_launch_tells_that_it_has_begun(driver, launch, strategy):
    """By itself too, in a graph too; the words of calls of a library stay 0."""
    program = made(driver, None, launch, strategy)
    for _ in range(3):
        program.run([X], [np.zeros_like(X)])
    assert program._memory.begun.tolist() == [3] * len(program._launches)
    assert not program._marks.under_way


# ---- where


@pytest.mark.parametrize("launch", ["streams", "graph"])
def test_a_fault_of_a_layer(driver, launch):
    program = made(driver, None, launch, "layerwise")
    program.run([X], [np.zeros_like(X)])
    k = named(program, "conv1")
    driver.strikes = nth(len(program._launches[k].tasks))
    told, kernel = fault_of(program), program._functions[k].source.name
    assert re.fullmatch(
        rf"the GPU took a fault in node 'conv1' \(Conv\), kernel {kernel}, 8 bricks, {BRICK} … {BRICK}: {REASON}{HINT}",
        told,
    )


def named(program, name):
    """The launch of a layer."""
    return next(k for k in range(len(program._launches)) if f"'{name}'" in program._names.launch(k))


def test_a_fault_of_padded_bricks(driver):
    program = made(driver, None, "graph", "padded")
    driver.strikes = lambda kernel, lo: lo[2:] == (8, 8)
    told = fault_of(program)
    assert f"{NODES}, kernel turns_" in told
    assert re.search(f", 16 bricks, {BRICK} … {BRICK}: {REASON}{HINT}$", told)


def test_a_fault_of_a_persistent_kernel(driver):
    program = made(driver)
    driver.strikes = lambda kernel, lo: lo[2:] == (8, 8)
    told = fault_of(program)
    assert f"{NODES}, kernel tickets_" in told and ", 64 bricks, [" in told


@pytest.mark.parametrize("launch", ["graph", "streams"])
def test_a_fault_of_a_call_of_the_library(launch):
    """It may have been any call between two kernels, or the kernel before them."""
    library = StrikingLibrary()
    driver = library.driver = CallbackDriver(given_library=library)
    program = made(driver, lowered(chain(3), "layerwise"), launch)
    assert list(program._calls.layers) == [1, 2, 3] and len(program._launches) == 5
    library.after = library.calls + 3 + 2
    program.run([X], [np.zeros_like(X)])
    told = fault_of(program)
    assert f"; or one of 3 calls of cuDNN, for nodes 'conv0', 'conv1', 'conv2': {REASON}{HINT}" in told
    assert "in node 'x→last' (Reorder), kernel turns_" in told and told.count(" or ") == 1


class StrikingLibrary(HostLibrary):
    """A library, one of whose calls makes the device take a fault."""

    def __init__(self) -> None:
        super().__init__(Frontend([PlanOf()]))
        self.calls, self.after = 0, None

    def _run(self, *args):
        super()._run(*args)
        self.calls += 1
        if self.calls == self.after:
            self.driver.strike()


def test_a_fault_on_a_second_stream():
    """What runs on other streams at the same time may have been it too."""
    tasks, seen = lowered(branches(), "layerwise"), set()
    for seed in range(8):
        driver = CallbackDriver(seed=seed)
        program = made(driver, tasks, "streams")
        assert program._schedule.streams == 2
        driver.strikes = nth(3 * seed + 1)
        told = fault_of(program)
        seen |= set(re.findall(r"(?:in|or) node '(\w+)' \(Conv\), kernel", told))
        assert "sum" not in told and ("'c'" in told) + ("'b'" in told) <= 1
    assert seen == {"a", "b", "c"}


def test_a_fault_of_launches_that_start_as_others_end():
    """There are more branches than streams, and launches of one stream need not come one after the other: the one that
    took the fault is never left out."""
    widths = range(1, 13)
    weights = {f"w{k}": np.ones((k, 3, 3, 3), np.float32) for k in widths}
    nodes = [node("Conv", f"x w{k}", f"c{k}", name=f"conv{k}", pads=[1] * 4) for k in widths]
    nodes.append(node("Concat", " ".join(f"c{k}" for k in widths), "y", axis=1))
    tasks = lowered(model(nodes, [tensor("x", X.shape)], **weights), "layerwise")
    for seed in range(16):
        driver = CallbackDriver(seed=seed)
        program, width = made(driver, tasks, "dynamic"), 1 + seed % len(widths)
        driver.strikes = lambda kernel, lo, width=width: kernel.op.name == "Conv" and kernel.out.shape[1] == width
        with pytest.raises(BrickError, match="the GPU took a fault in node"):
            program.run([X], [np.zeros((1, sum(widths), *X.shape[2:]), np.float32)])
        assert named(program, f"conv{width}") in program._marks.running()


# ---- when


def test_a_fault_that_nobody_waited_for(driver):
    """The call that notices it is of a later run."""
    program, stream = made(driver, strategy="layerwise"), driver.stream()
    x, y = HostArray(X), HostArray(np.zeros_like(X))
    program.run([x], [y], stream=stream)
    driver.strikes = nth(0)
    program.run([x], [y], stream=stream)
    assert "in node 'conv0' (Conv)" in fault_of(program, x, y)


def test_a_fault_of_another_program(driver):
    """The one that notices it names the other's launch."""
    first, second, stream = made(driver, strategy="layerwise"), made(driver, strategy="padded"), driver.stream()
    x, y = HostArray(X), HostArray(np.zeros_like(X))
    driver.strikes = nth(0)
    first.run([x], [y], stream=stream)
    with pytest.raises(DeviceError):
        stream.synchronize()
    assert re.match(r"the GPU took a fault in node 'conv0' \(Conv\), kernel turns_\w+, .*;", fault_of(second))


def test_a_fault_of_a_program_that_is_given_up(driver, capsys):
    program = made(driver)
    x, y = HostArray(X), HostArray(np.zeros_like(X))
    driver.strikes = lambda kernel, lo: True
    program.run([x], [y], stream=driver.stream())
    del program
    gc.collect()
    assert f"brickrt: the GPU took a fault {NODES}" in capsys.readouterr().err


def test_a_fault_while_launches_are_measured(driver):
    program = made(driver, strategy="layerwise")
    program.seconds()
    part = program._launches[named(program, "conv1")].subgraphs
    assert program.seconds(set(part)) > 0
    driver.strikes = nth(2 * 8)
    with pytest.raises(BrickError, match=r"in node 'conv1' \(Conv\)"):
        program.seconds(set(part))


def test_a_fault_before_a_kernel_began(driver):
    program = made(driver)
    driver.strike()
    assert fault_of(program) == f"the GPU took a fault when using the device: {REASON}"


def test_cancelling_what_took_a_fault_that_nobody_knows_of(driver):
    program = made(driver)
    driver.strike()
    program.cancel()
    with pytest.raises(BrickError, match="the GPU took a fault"):
        program.run([X], [np.zeros_like(X)])


def test_a_fault_while_plans_of_the_library_are_measured():
    """A plan that cannot be measured for other reasons is none."""
    library = HostLibrary(Frontend([PlanOf(), PlanOf()]))
    error = DeviceError("measuring", REASON)
    library._measure = lambda *_: (_ for _ in ()).throw(error)
    driver = CallbackDriver(given_library=library)
    program = made(driver, lowered(chain(3), "layerwise"))
    assert f"cuDNN refuses: measuring failed on the GPU: {REASON}" in program._calls.reasons.values()
    error.fatal = True
    with pytest.raises(
        BrickError, match=r"took a fault when measuring a plan of cuDNN's for conv \(1, 3, 16, 16\): cuda"
    ):
        made(driver, program.tasks)


def test_a_call_of_the_library_that_fails():
    """A fault that came before is what is told, if there is one."""
    library = FailingLibrary(Frontend([PlanOf()]))
    driver = CallbackDriver(given_library=library)
    program, y = made(driver, lowered(chain(3), "layerwise"), "streams"), np.zeros_like(X)
    library.struck = lambda: None
    with pytest.raises(
        BrickError, match=r"^node 'conv0', by cuDNN \(conv\): a call of cuDNN failed on .*: CUDNN_STATUS_E"
    ):
        program.run([X], [y])
    library.struck = driver.strike
    assert re.match("the GPU took a fault when using the device, before a kernel began: cuda", fault_of(program))


class FailingLibrary(HostLibrary):
    """A library whose calls fail in the way of the frontend, after what `struck` does."""

    def run(self, plan, addresses, workspace, stream):
        self.struck()
        Plans.run(self, replace(plan, run=self._fail), addresses, workspace, stream)

    def _fail(self, *_):
        raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")


# ---- checked runs


@pytest.mark.parametrize("strategy", ["layerwise", "padded", "memoized"])
def test_checked_runs_name_the_brick(monkeypatch, driver, strategy):
    monkeypatch.setenv("BRICKRT_CHECKED", "1")
    program, y = made(driver, strategy=strategy), np.zeros_like(X)
    for _ in range(2):
        program.run([X], [y])
        check(y, on_cpu(chain()))
    assert "graph" not in {call[0] for call in driver.calls}
    assert all(call[2] == 1 for call in driver.calls if call[0] == "launch")
    at, numbers = [], nth(13)

    def strikes(kernel, lo):
        found = numbers(kernel, lo)
        at.extend([lo] if found else [])
        return found

    driver.strikes = strikes
    told = fault_of(program)
    exactly = rf"{re.escape(NODES)}, kernel turns_\w+, brick {BRICK}"
    if strategy != "padded":
        exactly = rf"in node 'conv[01]', brick {BRICK}, kernel t\w+"
    assert re.fullmatch(f"the GPU took a fault {exactly}: {REASON}", told)
    brick = [int(start) for start in re.findall(r"(\d+):", told.partition("brick ")[2].partition("]")[0])]
    inside = at[0] if strategy != "padded" else [0, 0, *(lo // 4 * 4 for lo in np.add(at[0][2:], 1))]
    assert brick == list(inside)


def test_checked_runs_name_the_call(monkeypatch):
    monkeypatch.setenv("BRICKRT_CHECKED", "1")
    library = StrikingLibrary()
    driver = library.driver = CallbackDriver(given_library=library)
    program = made(driver, lowered(chain(3), "layerwise"))
    library.after = 2
    assert fault_of(program) == f"the GPU took a fault in node 'conv1', by cuDNN (conv): {REASON}"


def test_checked_runs_tell_of_their_events(monkeypatch, driver):
    monkeypatch.setenv("BRICKRT_CHECKED", "1")
    program = made(driver)
    rows = [np.zeros((len(program.tasks), 5), np.int64)]
    program.run([X], [np.zeros_like(X)], rows)
    assert sorted(rows[0][:, 0].tolist()) == list(range(len(program.tasks))) and (rows[0][:, 2] >= rows[0][:, 1]).all()


# ---- calls that fail, and memory


def test_a_launch_that_is_refused_is_named(monkeypatch, driver):
    program, y = made(driver, None, "streams", "layerwise"), np.zeros_like(X)
    numbers, put = count(), program._functions[named(program, "conv1")].launch
    function = program._functions[named(program, "conv0")]  # they have the same

    def refuse(*given):
        if next(numbers) == 0:
            return put(*given)
        raise DeviceError("launching kernel k", "cudaErrorInvalidConfiguration: invalid configuration argument")

    with monkeypatch.context() as patch, pytest.raises(BrickError) as told:
        patch.setattr(function, "launch", refuse)
        program.run([X], [y])
    wanted = "launching kernel k failed on the GPU: cudaErrorInvalidConfiguration: invalid configuration argument"
    assert re.fullmatch(f"node 'conv1' \\(Conv\\), kernel {function.source.name}, .*: {wanted}", str(told.value))
    for _ in range(2):
        program.run([X], [y])
        check(y, on_cpu(chain()))
    driver.strikes = nth(0)
    assert "in node 'conv0'" in fault_of(program)


def test_memory_that_runs_out_at_any_time(driver):
    """What it was for is named; with memory again all is well."""
    tasks, y, told = lowered(chain()), np.zeros_like(X), []
    for n in count():
        driver.allocations = n
        try:
            made(driver, tasks).run([X], [y])
            break
        except NoMemory as e:
            told.append(str(e))
    names = [re.fullmatch("the host has not enough memory left for (.*): none is free", one)[1] for one in told]
    program, *rest = names
    assert program == "a program (arena 0.0 MiB, records 0.0 MiB, constants 0.0 MiB, deps 0.0 MiB)"
    assert rest == ["counts of launches", "addresses of arrays", *["input 'x'"] * 2, *["output 'y'"] * 2]
    check(y, on_cpu(chain()))
    driver.check()
