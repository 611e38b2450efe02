"""Which programs a stage has: per shapes, per values that decide, and no more than a few of what keeps changing."""

from __future__ import annotations

import numpy as np

from brickrt.runtime.execution.stage_cache import MOST_VALUES
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.onnx_models import by_onnxruntime, graph, model, node, tensor

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)


def by_rate():
    """x → sr = 16000 ? relu : neg → exp"""
    chosen = node(
        "If",
        "c",
        "a",
        then_branch=graph([node("Relu", "x", "u")], outputs="u"),
        else_branch=graph([node("Neg", "x", "v")], outputs="v"),
    )
    nodes = [node("Equal", "sr k", "c"), chosen, node("Exp", "a", "y")]
    return model(nodes, [tensor("x", [2, 3]), tensor("sr", [], np.int64)], k=np.array(16000))


def check(runtime: Runtime, proto, **arrays: np.ndarray) -> None:
    for name, value in by_onnxruntime(proto, arrays).items():
        np.testing.assert_allclose(runtime.execute(arrays)[name], value, rtol=1e-5, atol=1e-6)


def test_a_rate_is_part_of_the_key_and_calls_alike_are_fast(fast):
    proto, x, other = by_rate(), X, -X
    runtime = Runtime(proto, device="reference")
    results = [runtime.execute({"x": a, "sr": np.array(sr)})["y"] for a, sr in ((x, 16000), (other, 16000), (x, 8000))]
    assert fast == [True, False]
    assert len(runtime.plans) == 1 and not runtime.fallback
    for result, wanted in zip(results, (np.maximum(x, 0), np.maximum(other, 0), -x), strict=True):
        np.testing.assert_allclose(result, np.exp(wanted), rtol=1e-6)
    check(runtime, proto, x=x, sr=np.array(16000))
    assert runtime.stats.compile_ms == 0


def test_many_values_are_computed_instead(fast):
    """Afterwards the condition decides, which has two values."""
    proto = by_rate()
    runtime, compiled = Runtime(proto, device="reference"), []
    for sr in (*range(MOST_VALUES + 3), 16000, 7, 16000, 100, 101):
        check(runtime, proto, x=X, sr=np.array(sr))
        runtime.execute({"x": X, "sr": np.array(sr + 1000)})
        compiled.append(runtime.stats.compile_ms > 0)
    assert compiled[0] and not any(compiled[-3:])
    assert len(runtime.plans) == 2
    check(runtime, proto, x=X, sr=np.array(16000))


def test_a_value_that_others_need_is_not_given_up():
    """n decides a condition, and is a shape: it has a program for each value, as before."""
    chosen = node(
        "If",
        "c",
        "a",
        then_branch=graph([node("Relu", "r", "u")], outputs="u"),
        else_branch=graph([node("Neg", "r", "v")], outputs="v"),
    )
    nodes = [
        node("Reshape", "x n", "r"),
        node("ReduceMax", "n", "most", keepdims=0),
        node("Greater", "most four", "c"),
        chosen,
        node("Exp", "a", "y"),
    ]
    proto = model(nodes, [tensor("x", [60]), tensor("n", [2], np.int64)], four=np.array(7))
    runtime = Runtime(proto, device="reference")
    for k in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60):
        check(runtime, proto, x=np.linspace(-1, 1, 60, dtype=np.float32), n=np.array([k, 60 // k]))
    assert len(runtime.plans) == 1
