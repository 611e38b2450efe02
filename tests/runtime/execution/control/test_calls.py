"""Loops on the CPU in several calls at once, cancelled, or without an end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from brickrt.graph.errors import BrickError
from brickrt.runtime.program_protocol import Cancelled
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.onnx_models import by_onnxruntime, graph, model, node, tensor

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
ENDS = [tensor("i", [], np.int64), tensor("go", [], bool), tensor("v", ["N", 3])]


def growing_loop():
    """v ← tanh(v + i), stacked"""
    steps = [
        node("Identity", "go", "go2"),
        node("Cast", "i", "f", to=1),
        node("Add", "v f", "p"),
        node("Tanh", "p", "v2", name="bend"),
    ]
    body = graph(steps, ENDS, [tensor("go2", [], bool), tensor("v2", None), tensor("v2", None)])
    inputs = [tensor("x", ["N", 3]), tensor("n", [], np.int64)]
    return model([node("Loop", "n _ x", "last all", body=body, name="l")], inputs, "last all")


def test_four_callers_at_once():
    proto = growing_loop()
    runtime = Runtime(proto, device="cpu", threads=1)
    calls = [{"x": np.tile(X, (k % 3 + 1, 1)) * k, "n": np.array(20 + k)} for k in range(24)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(runtime.execute, calls))
    for call, result in zip(calls, results, strict=True):
        for name, value in by_onnxruntime(proto, call).items():
            np.testing.assert_allclose(result[name], value, rtol=1e-5, atol=1e-6)


def test_a_loop_of_programs_can_be_cancelled():
    runtime = Runtime(growing_loop(), device="cpu", threads=1)
    runtime.execute({"x": X, "n": np.array(2)})
    stop = threading.Timer(0.2, runtime.cancel)
    stop.start()
    with pytest.raises(Cancelled):
        runtime.execute({"x": X, "n": np.array(1 << 60)})
    assert runtime.execute({"x": X, "n": np.array(3)})["all"].shape == (3, 2, 3)


def test_a_loop_without_an_end_is_refused(monkeypatch):
    monkeypatch.setenv("BRICKRT_RUN_SECONDS", "0.2")
    runtime = Runtime(growing_loop(), device="cpu", threads=1)
    with pytest.raises(BrickError, match=r"^Loop node 'l' is not done after"):
        runtime.execute({"x": X, "n": np.array(1 << 60)})


def test_a_branch_that_reads_texts():
    """The host computes both the texts and the If, as kernels know neither."""
    then = graph([node("StringNormalizer", "s", "u", case_change_action="UPPER")], [], [tensor("u", None, np.str_)])
    other = graph([node("Identity", "s", "w")], [], [tensor("w", None, np.str_)])
    nodes = [
        node("StringNormalizer", "t", "s", case_change_action="LOWER"),
        node("If", "yes", "y", then_branch=then, else_branch=other),
    ]
    proto = model(nodes, [tensor("t", ["N"], np.str_), tensor("yes", [], bool)], [tensor("y", None, np.str_)])
    runtime = Runtime(proto, device="cpu", threads=1)
    for yes, wanted in ((True, ["AB", "C"]), (False, ["ab", "c"])):
        texts = np.array(["aB", "C"], object)
        assert runtime.execute({"t": texts, "yes": np.array(yes)})["y"].tolist() == wanted


def test_programs_of_bodies_are_in_the_report():
    runtime = Runtime(growing_loop(), device="cpu", threads=1)
    runtime.execute({"x": X, "n": np.array(4)})
    assert [plan.graph.nodes[-1].name for plan in runtime.plans] == ["l/bend"]
    assert runtime.fallback == {"l": "the host decides what of it runs, and how often"}
    assert runtime.stats.host_ms >= 0 and runtime.stats.run_ms > 0
