"""A model that keeps brickrt busy is left with a line that says where; what folding does not finish runs later."""

from __future__ import annotations

import time

import numpy as np
import pytest

from brickrt.graph import time_budget
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.stages import first_stage
from brickrt.graph.time_budget import TooLong, check_time, folding, not_counted, preparing
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.by_definition import specialize_for
from tests.support.graphs.onnx_models import graph, model, node, tensor

X = np.ones(2, np.float32)


def spend(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        abs(1)


def counting(trips: int):
    """A loop that adds x to itself so many times, all constant."""
    ends = [tensor("i", [], np.int64), tensor("going", [], bool), tensor("s", [2])]
    body = graph([node("Add", "s x", "s2"), node("Identity", "going", "go2")], ends, "go2 s2")
    nodes = [node("Loop", "n _ x", "last", body=body, name="l"), node("Add", "last z", "y")]
    return model(nodes, [tensor("z", [2])], n=np.int64(trips), x=X)


def test_time_is_up_at_the_next_check(monkeypatch):
    monkeypatch.setenv(time_budget.VARIABLE, "0.05")
    check_time("reading", "a")
    with preparing():
        check_time("reading", "a")
        with not_counted():
            spend(0.1)
            check_time("measuring", "a")
        check_time("reading", "b")
        spend(0.1)
        with preparing(), pytest.raises(BrickError, match=r"reading 'c': .* busy .* 0.05 s.*BRICKRT_PREPARE_SECONDS"):
            check_time("reading", "c")
    check_time("reading", "d")


def test_some_things_may_take_several_times_as_long(monkeypatch):
    monkeypatch.setenv(time_budget.VARIABLE, "0.05")
    with preparing(times=4):
        spend(0.1)
        check_time("planning", "a")
        spend(0.15)
        with pytest.raises(BrickError, match=r"planning 'b': .* busy with the model for 0.2 s"):
            check_time("planning", "b")


def test_no_limit_and_nonsense(monkeypatch):
    monkeypatch.setenv(time_budget.VARIABLE, "0")
    with preparing(), folding():
        spend(0.02)
        check_time("reading", "a")
    for text in ("-1", "soon", "nan"):
        monkeypatch.setenv(time_budget.VARIABLE, text)
        with pytest.raises(BrickError, match=r"BRICKRT_PREPARE_SECONDS is .*: give it a number"), preparing():
            pass


def test_folding_is_left_from_inside_any_call(monkeypatch):
    monkeypatch.setenv(time_budget.VARIABLE, "0.1")
    started = time.thread_time()
    with preparing(), pytest.raises(TooLong), folding():
        spend(10)
    assert time.thread_time() - started < 5


def test_every_step_before_the_run_is_bounded(monkeypatch):
    chain = model([node("Softmax", f"t{k}" if k else "x", f"t{k + 1}") for k in range(200)], [tensor("x", [2])], "t200")
    source = load(chain)
    monkeypatch.setenv(time_budget.VARIABLE, "0.001")
    with pytest.raises(BrickError, match=r"reading .*busy with the model"):
        load(chain)
    with pytest.raises(BrickError, match=r"specializing Softmax node .*busy with the model"):
        Runtime(source, device="null").execute({"x": X})


def test_a_loop_too_long_to_fold_runs_on_the_host(monkeypatch):
    source = load(counting(2000))
    whole = specialize_for(first_stage(source), {"z": X})
    assert whole.rest is None and not whole.host_nodes
    monkeypatch.setenv(time_budget.VARIABLE, "0.02")
    with preparing():
        left = specialize_for(first_stage(source), {"z": X})
    assert [n.name for n in left.host_nodes] == ["l"]
    assert "too long" in left.host_reasons["l"]
    monkeypatch.undo()
    np.testing.assert_array_equal(Runtime(source, device="reference").execute({"z": X})["y"], 2002 * X)


def test_products_too_long_for_numpy_are_left_to_kernels(monkeypatch):
    proto = model(
        [node("MatMul", "a b", "c"), node("Add", "c z", "y")], [tensor("z", [2])], a=np.eye(2, dtype="f4"), b=X
    )
    assert len(specialize_for(first_stage(load(proto)), {"z": X}).graph.nodes) == 1
    monkeypatch.setattr("brickrt.graph.host.static_values.FOLDED_FLOPS", 7)
    assert any(n.op.name == "MatMul" for n in specialize_for(first_stage(load(proto)), {"z": X}).graph.nodes)
