"""Networks of float16 whose workers hold transformed weights from box to box."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from brickrt import Runtime
from brickrt.plan.cost import conv_algorithms
from brickrt.plan.cost.conv_algorithms import holds
from brickrt.plan.lean_weights import transformed_bytes, with_transforms
from brickrt.runtime.analysis.memory_projection import project
from tests.support.cpu.described import plan_for
from tests.support.graphs.onnx_models import by_onnxruntime, model, node, tensor

SIDE = 56


@pytest.fixture(autouse=True)
def held(monkeypatch):
    """Plans of vectors alone that hold weights, whatever is the fastest on the processor that runs this."""
    plan_for(monkeypatch, tiles=False, pairs=False)
    monkeypatch.setattr(conv_algorithms, "_transforms", lambda *_: ["winograd4-held-raw"])


def network(layers: int = 3) -> onnx.ModelProto:
    """Equal layers, of which two have the same code and other weights, and a layer between that has other code."""
    nodes, constants, x = [], {}, "x"
    for k in range(layers):
        w = np.random.default_rng(k).standard_normal((64, 64, 3, 3)) / 24
        constants[f"w{k}"] = w.astype(np.float16)
        nodes += [node("Conv", f"{x} w{k}", f"c{k}", pads=[1] * 4), node("Tanh", f"c{k}", f"t{k}")]
        x = f"t{k}"
        if k == 0:
            nodes.append(node("MaxPool", x, "p", kernel_shape=[3, 3], pads=[1] * 4))
            x = "p"
    dims = (1, 64, SIDE, SIDE)
    return model(nodes, [tensor("x", dims, np.float16)], [tensor(x, dims, np.float16)], **constants)


def test_bits_of_any_strategy_and_number_of_threads():
    feeds = {"x": np.random.default_rng(9).standard_normal((1, 64, SIDE, SIDE)).astype(np.float16)}
    (want,) = by_onnxruntime(network(), feeds).values()
    outputs = []
    for options in ({"threads": 1}, {"threads": 2}, {"threads": 3, "strategy": "memoized", "brick": 16}):
        runtime = Runtime(network(), device="cpu", **options)
        for _ in range(2):
            (found,) = runtime.execute(feeds).values()
            outputs.append(found)
        assert sum(map(holds, runtime.plan.programs[0].tasks.plan.algorithms.values())) > 1
        assert np.abs(found.astype(np.float64) - want).max() < 4e-3 * np.abs(want).max()
    for found in outputs:
        np.testing.assert_array_equal(found, outputs[0])


def test_what_workers_hold_is_projected_and_left_out_where_memory_is_scarce():
    runtime = Runtime(network(), device="cpu", threads=2)
    runtime.execute({"x": np.zeros((1, 64, SIDE, SIDE), np.float16)})
    tasks = runtime.plan.programs[0].tasks
    assert project(tasks, 2).scratch >= 2 * 36 * 64 * 64 * 4
    lean = with_transforms(tasks.plan, transformed_bytes(tasks.plan) // 2)
    assert not any(map(holds, lean.algorithms.values())) and any(map(holds, tasks.plan.algorithms.values()))
