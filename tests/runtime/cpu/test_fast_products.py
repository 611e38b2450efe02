"""Products and convolutions by Strassen's scheme and by minimal filtering inside a network: right under every strategy,
equal for any number of threads, and no further spread than definitions spread what is not finite."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from brickrt.plan.cost.strassen import LEVELS, PAIRED
from brickrt.runtime.session.runtime import Runtime
from tests.support.cpu.described import plan_for
from tests.support.cpu.schemes import needs_schemes

TOKENS, WIDTH = 301, 256
SPIKES = (np.nan, 0.1), (np.inf, 0.45), (1e4, 0.6), (1e8, 0.81), (3e38, 0.93)  # and after what share of the elements
SLOW = {"peak_gflops_per_core": 20.0, "tiles": False, "paces_weights": False}


@pytest.fixture(autouse=True)
def slow_arithmetic(monkeypatch):
    """A device that plans to multiply slowly: fast schemes are worth their sums there, whatever processor runs this."""
    plan_for(monkeypatch, **SLOW, pairs=False)


@cache
def residual() -> onnx.ModelProto:
    """x → half the size, ×2 wider → relu → back → + pooled x: pointwise layers of a residual network, with a stride."""
    rng = np.random.default_rng(0)
    weights = {
        "wide": rng.standard_normal((2 * WIDTH, WIDTH, 1, 1)) / WIDTH**0.5,
        "bias": rng.standard_normal(2 * WIDTH),
        "back": rng.standard_normal((WIDTH, 2 * WIDTH, 1, 1)) / WIDTH**0.5,
    }
    nodes = [
        helper.make_node("Conv", ["x", "wide", "bias"], ["m"], strides=[2, 2]),
        helper.make_node("Relu", ["m"], ["h"]),
        helper.make_node("Conv", ["h", "back"], ["b"]),
        helper.make_node("AveragePool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Add", ["b", "p"], ["y"]),
    ]
    return made(nodes, weights, [2, WIDTH, 26, 30], [2, WIDTH, 13, 15])


@cache
def filters() -> onnx.ModelProto:
    """x → 3×3 → relu → 3×3 dilated → 1×1 → 3×3 with a stride."""
    rng = np.random.default_rng(0)
    shapes = {"a": (64, 64, 3, 3), "b": (96, 64, 3, 3), "c": (256, 96, 1, 1), "d": (64, 256, 3, 3)}
    weights = {name: rng.standard_normal(shape) / np.prod(shape[1:]) ** 0.5 for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["m"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["m"], ["r"]),
        helper.make_node("Conv", ["r", "b"], ["n"], pads=[2, 2, 2, 2], dilations=[2, 2]),
        helper.make_node("Conv", ["n", "c"], ["p"]),
        helper.make_node("Conv", ["p", "d"], ["y"], pads=[1, 1, 1, 1], strides=[2, 2]),
    ]
    return made(nodes, weights, [1, 64, 44, 52], [1, 64, 22, 26])


@cache
def model() -> onnx.ModelProto:
    """x → norm → ×4 wider → sigmoid gate → back → + x: a layer of a transformer, with an odd number of tokens."""
    rng = np.random.default_rng(0)
    weights = {
        "scale": np.ones(WIDTH),
        "wide": rng.standard_normal((WIDTH, 4 * WIDTH)) / WIDTH**0.5,
        "bias": rng.standard_normal(4 * WIDTH),
        "back": rng.standard_normal((4 * WIDTH, WIDTH)) / WIDTH**0.5,
    }
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale"], ["n"]),
        helper.make_node("MatMul", ["n", "wide"], ["m"]),
        helper.make_node("Add", ["m", "bias"], ["h"]),
        helper.make_node("Sigmoid", ["h"], ["s"]),
        helper.make_node("Mul", ["h", "s"], ["g"]),
        helper.make_node("MatMul", ["g", "back"], ["b"]),
        helper.make_node("Add", ["b", "x"], ["y"]),
    ]
    return made(nodes, weights, [2, TOKENS, WIDTH], [2, TOKENS, WIDTH])


def made(nodes, weights, *shapes) -> onnx.ModelProto:
    """The model of `nodes` from x to y, which have these shapes."""
    ends = zip("xy", shapes, strict=True)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends)
    constants = [onnx.numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, "layer", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def sample(network) -> np.ndarray:
    shape = [d.dim_value for d in network.graph.input[0].type.tensor_type.shape.dim]
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def result(network, **options) -> tuple[np.ndarray, Runtime]:
    runtime = Runtime(network, device="cpu", **options)
    return runtime.execute({"x": sample(network)})["y"], runtime


@cache
def exact_results(network) -> list[np.ndarray]:
    """Results without fast schemes, of the sample and of it with each of `SPIKES`, whatever they are compared with."""
    runtime = Runtime(network(), device="cpu", exact=True, threads=1)
    found = [runtime.execute({"x": x})["y"] for x in (sample(network()), *spiked(network()))]
    assert not algorithms(runtime)
    return found


def spiked(network) -> list[np.ndarray]:
    """The sample with each of `SPIKES`."""
    found = []
    for value, share in SPIKES:
        x = sample(network)
        x.flat[int(share * x.size)] = value
        found.append(x)
    return found


def algorithms(runtime: Runtime) -> set[str]:
    return set(runtime.plan.programs[0].tasks.plan.algorithms.values())


@needs_schemes
@pytest.mark.parametrize("strategy", ["auto", "layerwise", "padded", "memoized"])
@pytest.mark.parametrize("network", [model, residual])
def test_network_with_fast_products(network, strategy):
    got, runtime = result(network(), strategy=strategy, threads=1)
    assert (network is residual and strategy in ("padded", "memoized")) or LEVELS.keys() & algorithms(runtime)
    want = exact_results(network)[0]
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()
    for threads in (2, 3):
        np.testing.assert_array_equal(result(network(), strategy=strategy, threads=threads)[0], got)


@needs_schemes
@pytest.mark.parametrize("network", [model, residual])
def test_network_with_paired_products(network, monkeypatch):
    plan_for(monkeypatch, **SLOW, pairs=True)
    got, runtime = result(network(), strategy="layerwise", threads=1)
    assert algorithms(runtime) == {PAIRED}
    want, _ = result(network(), exact=True, threads=1)
    assert np.abs(got - want).max() < 3e-6 * np.abs(want).max()
    np.testing.assert_array_equal(result(network(), strategy="layerwise", threads=3)[0], got)
    x = sample(network())
    x[1] = np.nan
    np.testing.assert_array_equal(runtime.execute({"x": x})["y"][0], got[0])


@needs_schemes
@pytest.mark.parametrize("network", [model, residual])
@pytest.mark.parametrize("value", [np.nan, 1e30])
def test_what_one_sample_holds_changes_no_other(network, value):
    runtime = Runtime(network(), device="cpu", threads=2)
    x = sample(network())
    plain = runtime.execute({"x": x})["y"]
    assert LEVELS.keys() & algorithms(runtime)
    x[1] = value
    np.testing.assert_array_equal(runtime.execute({"x": x})["y"][0], plain[0])


@needs_schemes
@pytest.mark.parametrize(
    ("network", "strategy"),
    [
        *(
            (network, strategy)
            for network in (model, filters)
            for strategy in ("auto", "layerwise", "padded", "memoized")
        ),
        *((residual, strategy) for strategy in ("auto", "layerwise")),  # in bricks it has no fast products
    ],
)
def test_what_is_not_finite_spreads_as_defined(network, strategy):
    fast = Runtime(network(), device="cpu", strategy=strategy, threads=2)
    plain, *wanted = exact_results(network)
    for given, want in zip(spiked(network()), wanted, strict=True):
        got = fast.execute({"x": given})["y"]
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
        outside = want == plain
        assert np.abs(got[outside] - want[outside]).max() < 1e-5 * np.abs(want[outside]).max()
    assert algorithms(fast)
