"""Runs that another thread ends by their options, beside ONNX Runtime's."""

from __future__ import annotations

import threading

import numpy as np
import onnx
import onnxruntime
import pytest

import brickrt.onnxruntime as ort
from brickrt.graph.errors import BrickError
from tests.support.graphs.onnx_models import model, node, tensor

ENDLESS = 10**12  # rounds


@pytest.fixture(scope="module")
def rounds() -> ort.InferenceSession:
    """x + 1, `n` times over"""
    body = onnx.helper.make_graph(
        [node("Identity", "go", "on"), node("Add", "s one", "t")],
        "round",
        [tensor("i", (), np.int64), tensor("go", (), bool), tensor("s", (2,))],
        [tensor("on", (), bool), tensor("t", (2,))],
    )
    nodes = [node("Loop", "n _ x", "y", body=body)]
    inputs = [tensor("n", (), np.int64), tensor("x", (2,))]
    return ort.InferenceSession(model(nodes, inputs, [tensor("y", (2,))], one=np.ones(1, np.float32)))


def feed(count: int) -> dict[str, np.ndarray]:
    return {"n": np.array(count, np.int64), "x": np.zeros(2, np.float32)}


@pytest.mark.parametrize("there", [ort, onnxruntime])
def test_a_run_that_is_to_end_does_not_begin(there):
    made = model([node("Relu", "x", "y")], [tensor("x", (2,))], [tensor("y", (2,))])
    session, options = there.InferenceSession(made.SerializeToString()), there.RunOptions()
    options.terminate = True
    with pytest.raises(there.capi.onnxruntime_pybind11_state.Fail, match="terminate flag"):
        session.run(None, {"x": np.ones(2, np.float32)}, options)
    options.terminate = False
    assert session.run(None, {"x": np.ones(2, np.float32)}, options)[0].tolist() == [1, 1]


def test_another_thread_ends_a_run_and_no_other(rounds):
    """An endless run is ended while one of the same session goes on to its end."""
    options, found = ort.RunOptions(), []

    def endless() -> None:
        with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail, match="terminate flag") as caught:
            rounds.run(None, feed(ENDLESS), options)
        found.append(caught.type)

    thread = threading.Thread(target=endless)
    thread.start()
    ending = threading.Timer(0.05, setattr, (options, "terminate", True))
    ending.start()
    assert rounds.run(None, feed(3000))[0].tolist() == [3000, 3000]
    thread.join(60)
    assert found and issubclass(found[0], BrickError)
    assert rounds.run(None, feed(3))[0].tolist() == [3, 3]  # nothing of it is left


def test_a_bound_run_is_ended_too(rounds):
    options = ort.RunOptions()
    binding = rounds.io_binding()
    for name, array in feed(ENDLESS).items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("y")
    threading.Timer(0.05, setattr, (options, "terminate", True)).start()
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail, match="terminate flag"):
        rounds.run_with_iobinding(binding, options)


def test_options_have_the_fields_that_are_known():
    options = ort.RunOptions()
    options.log_severity_level, options.logid = 3, "mine"
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    assert options.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"
    with pytest.raises(AttributeError):
        options.terminated = True
    with pytest.raises(BrickError, match="adapters do not run here"):
        options.add_active_adapter(None)
