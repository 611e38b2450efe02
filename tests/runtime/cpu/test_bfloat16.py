"""float32 models with products of bfloat16: by every strategy and number of threads the same bits, near the float64
results of the same factors."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from brickrt import Runtime
from tests.support.cpu.described import plan_for
from tests.support.graphs.onnx_models import model, node, tensor

SHAPE = (1, 3, 20, 18)


@pytest.fixture(autouse=True)
def gains(monkeypatch):
    """A device that plans to multiply bfloat16 faster, whatever processor runs this."""
    plan_for(monkeypatch, bfloat16_products=2)


def sample(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def network() -> onnx.ModelProto:
    """A stem, two branches that are added, a depthwise layer, pools, attention over pixels, a norm, a gate of
    channels and a matrix product."""
    nodes = [
        node("Conv", "x stem b", "a0", pads=[1] * 4),
        node("Relu", "a0", "a"),
        node("MaxPool", "a", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p v", "b1", pads=[1] * 4),
        node("Conv", "p u", "b2"),
        node("Add", "b1 b2", "c"),
        node("Conv", "c depth", "d", group=20, pads=[1] * 4),
        node("Sigmoid", "d", "s"),
        node("Mul", "d s", "e"),
        node("AveragePool", "e", "q", kernel_shape=[3, 3], strides=[2, 2]),
        node("GlobalAveragePool", "q", "mean"),
        node("Conv", "mean squeeze", "gate0"),
        node("Sigmoid", "gate0", "gate"),
        node("Mul", "q gate", "g"),
        node("Conv", "g t", "g2"),
        node("Reshape", "g2 rows", "f"),
        node("Transpose", "f", "ft", perm=[0, 2, 1]),
        node("MatMul", "ft f", "scores"),
        node("Softmax", "scores", "weights", axis=-1),
        node("MatMul", "weights ft", "mixed"),
        node("LayerNormalization", "mixed scale", "n", axis=-1),
        node("MatMul", "n out", "y"),
    ]
    weights = {"stem": (18, 3, 3, 3), "b": (18,), "v": (20, 18, 3, 3), "u": (20, 18, 1, 1), "depth": (20, 1, 3, 3)}
    weights |= {"squeeze": (20, 20, 1, 1), "t": (24, 20, 1, 1), "scale": (24,), "out": (24, 7)}
    arrays = {
        name: sample(*shape, seed=k) / np.sqrt(np.prod(shape[1:])) for k, (name, shape) in enumerate(weights.items())
    }
    constants = {name: array.astype(np.float32) for name, array in arrays.items()}
    constants |= {
        "rows": np.array([1, 24, -1], np.int64),
    }
    return model(nodes, [tensor("x", SHAPE)], "y", **constants)


def results(**how: object) -> np.ndarray:
    with Runtime(network(), **{"precision": "bf16", "device": "cpu"} | how) as runtime:
        return runtime.execute({"x": sample(*SHAPE, seed=9)})["y"]


def test_a_network():
    by_definition, got = results(device="reference"), results(threads=1)
    largest = np.abs(by_definition).max()
    assert np.abs(got - by_definition).max() <= 2e-2 * largest  # single elements are rounded the other way
    assert 0 < np.abs(got - results(precision="fp32")).max() <= 5e-2 * largest
    for how in ({"threads": 2}, {"strategy": "memoized", "brick": 8}):
        np.testing.assert_array_equal(results(**{"threads": 1, **how}), got)


def test_a_processor_that_gains_nothing_rounds_nothing(monkeypatch):
    plan_for(monkeypatch, bfloat16_products=1, tiles=False)
    np.testing.assert_array_equal(results(threads=1), results(threads=1, precision="fp32"))
