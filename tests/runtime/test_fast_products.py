"""Products by Strassen's scheme inside a network: right under every strategy, equal for any number of threads."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from brickrt.plan.strassen import LEVELS
from brickrt.runtime.runtime import Runtime

TOKENS, WIDTH = 301, 256


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
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, TOKENS, WIDTH]) for name in "xy")
    constants = [onnx.numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, "layer", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def result(**options) -> tuple[np.ndarray, Runtime]:
    runtime = Runtime(model(), device="cpu", **options)
    x = np.random.default_rng(1).standard_normal((2, TOKENS, WIDTH)).astype(np.float32)
    return runtime.execute({"x": x})["y"], runtime


@pytest.mark.parametrize("strategy", ["auto", "layerwise", "padded", "memoized"])
def test_network_with_fast_products(strategy):
    got, runtime = result(strategy=strategy, threads=1)
    assert LEVELS.keys() & set(runtime.plan.programs[0].tasks.plan.algorithms.values())
    want, plain = result(exact=True, threads=1)
    assert not plain.plan.programs[0].tasks.plan.algorithms
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()
    for threads in (2, 3):
        np.testing.assert_array_equal(result(strategy=strategy, threads=threads)[0], got)
