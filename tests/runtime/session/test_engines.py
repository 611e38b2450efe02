"""Networks of the zoo on every engine: right under every strategy, and the same for every number of threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.plan.device.device_spec import host_device
from brickrt.plan.plan import make_plan
from brickrt.runtime.cache import plan_cache
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.cpu.program import CpuProgram
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.onnx_models import by_onnxruntime, model, node, tensor
from tests.support.graphs.piece_graphs import pieces
from tests.support.graphs.plan_graphs import networks
from tests.support.task_checks import check_arena, check_reads, in_bands, lowered, with_values
from tests.support.zoo_networks import SMALLEST, expected, network

SIZES = SMALLEST | {"deepcam": (64, 96), "drn-c-26": 64, "nafnet": 16, "vit-s16": 32}
SIZES |= {"bert": 33, "bsrn": (17, 29), "conformer": 61, "nerf": 101, "restormer": (16, 24), "swin-t": (36, 40)}
STRATEGIES = ["layerwise", "padded", "memoized", "auto"]


def run(name: str, **options) -> tuple[np.ndarray, Runtime]:
    model, feeds = network(name, SIZES[name])
    runtime = Runtime(model, **options)
    return runtime.execute(feeds)["y"], runtime


def check_close(name: str, result: np.ndarray) -> None:
    want = expected(name, SIZES[name])
    assert result.shape == want.shape
    assert result.dtype == want.dtype
    np.testing.assert_allclose(result, want, rtol=0, atol=1e-4 * np.abs(want).max())


def check_stats(runtime: Runtime) -> None:
    stats, strategies = runtime.stats, {s.strategy for plan in runtime.plans for s in plan.subgraphs}
    assert stats.complete_first + stats.waits + stats.revisits == stats.tasks
    assert stats.recomputed >= 0
    assert stats.recomputed == 0 or "padded" in strategies
    assert stats.peak_bytes > 0
    assert stats.level_bytes
    assert all(moved > 0 for moved in stats.level_bytes.values())


# ---- cpu

# Each network in one strategy, and one of them in all: conformer, MobileViT and DeepCAM run with `auto` in
# tests/zoo/test_open_sizes.py, MobileNetV2 layer by layer below.
RUNS = [
    ("bert", "memoized", 4),
    ("bsrn", "padded", 4),
    ("mobilenetv2", "memoized", 4),
    ("nafnet", "layerwise", None),
    ("nafnet", "padded", 4),
    ("nafnet", "memoized", 4),
    ("nerf", "auto", None),
    ("resnet34-3d", "padded", 4),
    ("restormer", "padded", 4),
    ("swin-t", "memoized", 4),
    ("unet", "padded", 8),
    ("unet3d", "memoized", 4),
    ("vit-s16", "padded", 4),
]


# Which numbers of threads must give what one gives, where it is not 3: none for two of the largest.
THREADS: dict[str, tuple[int, ...]] = {"nafnet": (2, 3), "mobilenetv2": (2, 3), "resnet34-3d": ()}


@pytest.mark.parametrize(("name", "strategy", "brick"), RUNS)
def test_cpu(name, strategy, brick):
    result, runtime = run(name, device="cpu", strategy=strategy, brick=brick, threads=1)
    check_close(name, result)
    check_stats(runtime)
    assert runtime.stats.revisits == 0
    for threads in THREADS.get(name, (3,)):
        again, other = run(name, device="cpu", strategy=strategy, brick=brick, threads=threads)
        np.testing.assert_array_equal(again, result, f"{threads} threads")
        measured = other.plan.measured  # what is modelled is that of the same plan
        assert measured.tasks == runtime.stats.tasks
        assert measured.recomputed == runtime.stats.recomputed


@pytest.mark.parametrize("name", ["mobilenetv2", "nafnet"])
def test_bricks_do_not_change_a_bit(name):
    """Without Winograd, each output adds the same products in the same order, whatever box it is computed in."""
    first, _ = run(name, device="cpu", strategy="layerwise", exact=True)
    for strategy, brick in [("padded", 4), ("memoized", 3)]:
        again, _ = run(name, device="cpu", strategy=strategy, brick=brick, exact=True)
        np.testing.assert_array_equal(again, first, f"{strategy} {brick}")


@pytest.mark.parametrize(("name", "band"), [("nafnet", 1), ("unet3d", 3)])
def test_sweeping_a_brick_does_not_change_a_bit(name, band, monkeypatch):
    """Bricks of 16 in bands of a few rows: rows are kept and moved between bands, none is computed twice in a brick."""
    first, _ = run(name, device="cpu", strategy="layerwise", exact=True)
    whole, once = run(name, device="cpu", strategy="padded", brick=16, exact=True)
    monkeypatch.setattr(plan_cache, "remembered_plan", lambda *given: in_bands(make_plan(*given), band))
    for device in ("cpu", "reference"):
        again, swept = run(name, device=device, strategy="padded", brick=16, exact=True)
        assert swept.stats.recomputed == once.stats.recomputed
        if device == "cpu":
            np.testing.assert_array_equal(again, first)
            np.testing.assert_array_equal(again, whole)
            assert any(program.tasks.scratch_moves for program in swept.plan.programs)
        else:
            check_close(name, again)


@settings(max_examples=8, deadline=None)
@given(
    st.one_of(networks(), pieces()),
    st.sampled_from(STRATEGIES),
    st.sampled_from([1, 2, 3, 4, 8]),
    st.sampled_from([None, 1, 2, 3]),
    st.sampled_from([None, "avx2", "generic"]),
)
def test_random_graphs(graph, strategy, brick, band, isa):
    graph, inputs = with_values(graph)
    want, spec = interpret(graph, inputs), replace(host_device(isa), cores=4, min_task_us=1e-3)
    program = CpuProgram.build(lowered(graph, strategy, spec, band, brick=brick), host_isa(host_device(isa)), threads=2)
    outputs = [np.full(graph.types[name].shape, np.nan, np.float32) for name in graph.outputs]
    for _ in range(2):
        program.run([inputs[name] for name in graph.inputs], outputs)
        for name, array in zip(graph.outputs, outputs, strict=True):
            np.testing.assert_allclose(array, want[name], rtol=0, atol=1e-4 * max(1, np.abs(want[name]).max()))


@pytest.mark.parametrize("name", ["bert", "nafnet"])
def test_unfused(name):
    """Each function is an operator of its own: there are more of them, and they compute the same."""
    result, runtime = run(name, device="cpu", rules="unfused", threads=2)
    check_close(name, result)
    plans = runtime.plans
    assert {s.strategy for plan in plans for s in plan.subgraphs} == {"layerwise"}
    _, fused = run(name, device="null", strategy="layerwise")
    assert sum(len(plan.subgraphs) for plan in plans) > 1.5 * sum(len(plan.subgraphs) for plan in fused.plans)


def test_recomputed_bricks_are_told():
    for strategy, some in [("layerwise", False), ("padded", True), ("memoized", False)]:
        _, runtime = run("nafnet", device="null", strategy=strategy, brick=4)
        assert (runtime.stats.recomputed > 0) == some, strategy


def test_a_program_runs_again_and_again():
    model, feeds = network("nafnet", SIZES["nafnet"])
    runtime = Runtime(model, device="cpu", strategy="memoized", brick=4, threads=3)
    first = runtime.execute(feeds)["y"]
    for _ in range(20):
        np.testing.assert_array_equal(runtime.execute(feeds)["y"], first)
    assert runtime.stats.compile_ms == 0


def test_a_lesser_instruction_set():
    for isa in ("avx2", "generic"):
        result, runtime = run("nafnet", device="cpu", isa=isa, strategy="padded", brick=8)
        check_close("nafnet", result)
        assert runtime.plans[0].device.isa == isa


# ---- reference and null


@pytest.mark.parametrize(("name", "strategy"), [("nafnet", "padded"), ("vit-s16", "memoized"), ("mobilenetv2", "auto")])
def test_reference(name, strategy):
    result, runtime = run(name, device="reference", strategy=strategy, brick=8)
    check_close(name, result)
    check_stats(runtime)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bricks_that_need_nothing_of_an_input(strategy):
    """Steps of 5 and a kernel of 1: most rows of the output are the bias."""
    nodes = [node("Relu", "x", "r"), node("ConvTranspose", "r w b", "y", strides=[5, 5])]
    proto = model(nodes, [tensor("x", [1, 2, 4, 4])], w=np.ones((2, 3, 1, 1), np.float32), b=np.float32([1, 2, 3]))
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype(np.float32)
    want = by_onnxruntime(proto, {"x": x})["y"]
    for device in ("reference", "cpu"):
        y = Runtime(proto, device=device, strategy=strategy, brick=1).execute({"x": x})["y"]
        np.testing.assert_allclose(y, want, 1e-6)


@pytest.mark.parametrize(
    ("name", "strategy"), [(name, STRATEGIES[k % len(STRATEGIES)]) for k, name in enumerate(SIZES)]
)
def test_null_runs_every_task_of_a_safe_schedule(name, strategy):
    """Each network in one strategy; the tests of lowering check all of them on random graphs."""
    model, feeds = network(name, SIZES[name])
    runtime = Runtime(model, device="null", strategy=strategy, brick=None if strategy == "auto" else 8, threads=2)
    shape = tuple(dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim)
    assert runtime.execute(feeds)["y"].shape == shape
    check_stats(runtime)
    programs = runtime.plan.programs
    assert runtime.stats.tasks == sum(len(program.tasks) for program in programs)
    for program in programs:
        check_reads(program.tasks)
        check_arena(program.tasks)
