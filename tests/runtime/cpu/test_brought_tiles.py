"""Networks whose second factors are brought into tile registers: the same bits for any number of threads and every
strategy, near what vector registers compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from brickrt.plan.cost.tile_products import TILES
from brickrt.plan.device.device_spec import host_device
from brickrt.runtime import engines
from brickrt.runtime.session.runtime import Runtime
from tests.runtime.cpu.test_attention import attention, definition
from tests.support.cpu.tiles import needs_tiles

STRATEGIES = ("auto", "layerwise", "padded")


def half_network():
    """x [2, 70, 96] → ×128 → relu → ×90 → y, all in float16."""
    rng = np.random.default_rng(0)
    weights = {"a": rng.standard_normal((96, 128)) / 10, "b": rng.standard_normal((128, 90)) / 10}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["m"]),
        helper.make_node("Relu", ["m"], ["h"]),
        helper.make_node("MatMul", ["h", "b"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT16, [2, 70, w]) for n, w in (("x", 96), ("y", 90)))
    constants = [numpy_helper.from_array(w.astype(np.float16), name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, "half", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def half_definition(x):
    a, b = (numpy_helper.to_array(w).astype(np.float64) for w in half_network().graph.initializer)
    return np.maximum(x.astype(np.float64) @ a, 0) @ b


def results(model, feeds, **options):
    """Outputs by one thread and by three, which are equal, and the algorithms of the plan."""
    found = []
    for threads in (1, 3):
        runtime = Runtime(model, device="cpu", threads=threads, **options)
        found.append(runtime.execute(feeds)["y"])
    np.testing.assert_array_equal(*found)
    return found[0], list(runtime.plan.programs[0].tasks.plan.algorithms.values())


@needs_tiles
@pytest.mark.parametrize("size", [(2, 6, 197, 197, 64), (1, 3, 131, 77, 40)], ids=str)
def test_attention_of_bfloat16(size):
    model, rng = attention(*size), np.random.default_rng(0)
    shapes = [[d.dim_value for d in x.type.tensor_type.shape.dim] for x in model.graph.input]
    feeds = {n: rng.standard_normal(s).astype(np.float32) for n, s in zip("qkv", shapes, strict=True)}
    feeds["q"] *= np.float32(size[-1] ** -0.5)  # as in networks, so that scores are rounded by little
    outputs = {s: results(model, feeds, strategy=s, precision="bf16") for s in STRATEGIES}
    want = definition(*feeds.values())
    for got, algorithms in outputs.values():
        assert algorithms == [TILES, TILES]
        assert np.abs(got - want).max() < 0.02 * np.abs(want).max()
        np.testing.assert_array_equal(got, outputs["auto"][0])


@needs_tiles
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_weights_of_float16(monkeypatch, strategy):
    """On a device without tiles, and on one with them."""
    feeds = {"x": np.random.default_rng(1).standard_normal((2, 70, 96)).astype(np.float16)}
    vectors = replace(host_device(), tiles=False)
    for device, chosen in ((vectors, []), (replace(vectors, tiles=True, pairs=False), [TILES, TILES])):
        monkeypatch.setattr(engines, "host_device", lambda isa=None, device=device: device)
        got, algorithms = results(half_network(), feeds, strategy=strategy)
        assert algorithms == chosen
        want = half_definition(feeds["x"])
        assert np.abs(got - want).max() < 2e-3 * np.abs(want).max()
