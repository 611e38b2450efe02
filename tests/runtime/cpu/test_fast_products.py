"""Products and pointwise convolutions by Strassen's scheme inside a network: right under every strategy, equal for any
number of threads."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from brickrt.plan.cost.strassen import LEVELS
from brickrt.runtime.session.runtime import Runtime

TOKENS, WIDTH = 301, 256


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


def algorithms(runtime: Runtime) -> set[str]:
    return set(runtime.plan.programs[0].tasks.plan.algorithms.values())


@pytest.mark.parametrize("strategy", ["auto", "layerwise", "padded", "memoized"])
@pytest.mark.parametrize("network", [model, residual])
def test_network_with_fast_products(network, strategy):
    got, runtime = result(network(), strategy=strategy, threads=1)
    assert (network is residual and strategy in ("padded", "memoized")) or LEVELS.keys() & algorithms(runtime)
    want, plain = result(network(), exact=True, threads=1)
    assert not algorithms(plain)
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()
    for threads in (2, 3):
        np.testing.assert_array_equal(result(network(), strategy=strategy, threads=threads)[0], got)


@pytest.mark.parametrize("network", [model, residual])
@pytest.mark.parametrize("value", [np.nan, 1e30])
def test_what_one_sample_holds_changes_no_other(network, value):
    runtime = Runtime(network(), device="cpu", threads=2)
    x = sample(network())
    plain = runtime.execute({"x": x})["y"]
    assert LEVELS.keys() & algorithms(runtime)
    x[1] = value
    np.testing.assert_array_equal(runtime.execute({"x": x})["y"][0], plain[0])
