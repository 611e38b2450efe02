"""Whole networks on the host whose products are computed by a library, in the place of cuDNN."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.runtime.session import runtime
from brickrt.runtime.session.runtime import Runtime
from tests.runtime.cuda.test_program import network
from tests.support.cuda.callback_kernels import CallbackDriver, use_callbacks
from tests.support.cuda.engines import engine_on
from tests.support.cuda.host_kernels import needs_compiler
from tests.support.cudnn.fake_cudnn import Frontend, HostLibrary, PlanOf

pytestmark = needs_compiler


@pytest.fixture(autouse=True)
def _callbacks(monkeypatch, tmp_path):
    use_callbacks(monkeypatch)
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))


def run(monkeypatch, name, library, launch="graph", strategy="layerwise", again=True, **options):
    model, feeds, want = network(name)
    driver = CallbackDriver(seed=3, given_library=library)
    monkeypatch.setattr(runtime, "choose_engine", lambda *_: engine_on(driver, launch))
    made = Runtime(model, device="cuda", strategy=strategy, **options)
    first = made.execute(feeds)["y"]
    np.testing.assert_allclose(first, want, rtol=0, atol=1e-4 * np.abs(want).max())
    if again:
        np.testing.assert_array_equal(made.execute(feeds)["y"], first)
    driver.check()
    (program,) = made.plan.programs
    return driver, program


@pytest.mark.parametrize("launch", ["streams", "dynamic", "graph"])
@pytest.mark.parametrize("name", ["mobilenetv2", "unet"])
def test_products_of_layers_are_the_librarys(monkeypatch, name, launch):
    library = HostLibrary(Frontend([PlanOf(workspace=64)]))
    driver, program = run(monkeypatch, name, library, launch)
    calls = program._calls
    products = [n for n in program.tasks.plan.graph.nodes if n.op.name in ("Conv", "ConvTranspose", "MatMul")]
    assert len(calls.layers) + len(calls.reasons) == len(products) and len(calls.layers) > len(products) // 2
    warm = len(calls.first_uses([turn.stream for turn in program._schedule.turns]))
    assert len(library.ran) == (len(calls.layers) + warm if launch == "graph" else 2 * len(calls.layers))
    launched = sum(call[0] == "launch" for call in driver.calls) // (1 if launch == "graph" else 2)
    assert launched + len(calls.layers) == len(program._launches)


def test_ends_of_the_graph_are_no_operands(monkeypatch):
    """The last product writes the output itself."""
    _, program = run(monkeypatch, "mobilenetv2", HostLibrary(Frontend()))
    assert any("is an input or output of the graph" in reason for reason in program._calls.reasons.values())


@pytest.mark.parametrize("launch", ["streams", "dynamic"])
def test_branches_have_workspaces_of_their_own(monkeypatch, launch):
    library = HostLibrary(Frontend([PlanOf(workspace=1000)]))
    run(monkeypatch, "inception-v4", library, launch)
    streams = {number for number, *_ in library.ran}
    assert len(streams) > 1 and len({workspace for _, workspace, _ in library.ran}) == len(streams)


def test_what_the_library_refuses_is_computed_by_kernels(monkeypatch):
    library = HostLibrary(Frontend([]))
    _, program = run(monkeypatch, "mobilenetv2", library)
    assert not program._calls.layers and not library.ran
    assert "cuDNN refuses: no engine for this graph" in program._calls.reasons.values()


@pytest.mark.parametrize(
    ("name", "strategy", "most"),
    [
        ("mobilenetv2", "layerwise", 0),
        ("mobilenetv2", "layerwise", 1),
        ("vit-s16", "layerwise", 1),
        ("unet", "padded", 1),
        ("resnet50", "padded", 0),
    ],
)
def test_epilogues_that_the_library_refuses_are_computed_by_kernels(monkeypatch, name, strategy, most):
    """The products are its all the same, with their bias where it takes one operation."""
    options = {"strategy": strategy, "again": False} | ({"brick": 8} if strategy == "padded" else {})
    program = run(monkeypatch, name, HostLibrary(Frontend([PlanOf(workspace=64)], most)), **options)[1]
    calls, found = program._calls, {layer.share for layer, _ in program._calls.layers.values()}
    assert found <= {"all", "biased" if most else "product"} and found != {"all"}
    assert set(calls.rests.values()) == {"cuDNN refuses: no engine for this graph"}
    assert "epilogues by kernels: cuDNN refuses: no engine" in program.notes["cuDNN"]
    whole = run(monkeypatch, name, HostLibrary(Frontend([PlanOf(workspace=64)])), **options)[1]._calls
    assert not whole.rests and len(calls.layers) >= len(whole.layers)


def test_weights_are_uploaded_once(monkeypatch):
    without = run(monkeypatch, "unet", None, again=False)[1]
    with_library = run(monkeypatch, "unet", HostLibrary(Frontend()), again=False)[1]
    assert with_library.constant_bytes < 1.1 * without.constant_bytes


@pytest.mark.parametrize(
    ("name", "precision", "brick"),
    [
        ("unet", "fp32", 8),
        ("resnet34-3d", "fp32", 8),
        ("drn-c-26", "tf32", 8),
        ("nafnet", "fp32", 4),
        ("vit-s16", "fp32", 2),
    ],
)
def test_padded_bricks_are_the_librarys(monkeypatch, name, precision, brick):
    """Nothing but calls for all products whose bricks the cache holds."""
    library = HostLibrary(Frontend([PlanOf(workspace=64)]))
    _, program = run(monkeypatch, name, library, strategy="padded", again=False, brick=brick, precision=precision)
    plan = program.tasks.plan
    convs = [n.name for n in plan.graph.nodes if n.op.name in ("Conv", "ConvTranspose")]
    padded = [plan.graph.nodes[k] for s in plan.subgraphs if s.strategy == "padded" for k in s.nodes]
    assert not any(n.name in program._calls.reasons for n in padded if n.op.name == "MatMul")
    left = [n for n in convs if n in program._calls.reasons]
    assert set(program._calls.reasons.values()) <= {
        "a brick is larger than the cache",
        "'y' is an input or output of the graph",
    }
    assert len(left) <= len(convs) // 2 and len(program._calls.layers) >= len(convs) - len(left)
