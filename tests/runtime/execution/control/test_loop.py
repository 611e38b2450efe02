"""Loops whose bodies are programs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from brickrt.graph.errors import BrickError
from brickrt.runtime.execution.stage_cache import MOST_SHAPES
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.onnx_models import by_onnxruntime, graph, model, node, tensor

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((3, 3)).astype(np.float32) / 2


def loop(
    steps: list[onnx.NodeProto], states: dict[str, tuple[str, str, list]], stacked: str = "", **weights
) -> onnx.ModelProto:
    """A loop of `n` rounds. For each state of the body the initial value outside, the name of its next value, and its
    shape. Its states come out as `last_…`, what it stacks as `all_…`."""
    ends = [tensor("i", [], np.int64), tensor("go", [], bool)]
    ends += [tensor(name, shape) for name, (_, _, shape) in states.items()]
    outs = [tensor(name, None) for name in (*(out for _, out, _ in states.values()), *stacked.split())]
    body = graph([node("Identity", "go", "go2"), *steps], ends, [tensor("go2", [], bool), *outs])
    names = [*(f"last_{name}" for name in states), *(f"all_{name}" for name in stacked.split())]
    made = node(
        "Loop", f"n _ {' '.join(outer for outer, _, _ in states.values())}", " ".join(names), body=body, name="l"
    )
    return model([made], [tensor("x", ["N", 3]), tensor("n", [], np.int64)], " ".join(names), **weights)


def check(proto: onnx.ModelProto, runtime: Runtime, **arrays: np.ndarray) -> dict[str, np.ndarray]:
    results = runtime.execute(arrays)
    for name, value in by_onnxruntime(proto, arrays).items():
        np.testing.assert_allclose(results[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    return results


@pytest.fixture
def stages(monkeypatch) -> list[str]:
    """What was compiled: the names of the first nodes of each stage."""
    made: list[str] = []
    original = Pipeline._compiled

    def noted(self, stage, types, values):
        found = original(self, stage, types, values)
        if not getattr(found, "need_values", None):
            made.append(stage.nodes[0].name if stage.nodes else "")
        return found

    monkeypatch.setattr(Pipeline, "_compiled", noted)
    return made


def test_a_body_is_compiled_once_for_its_shapes(stages):
    """v ← tanh(v · w), of which w is a constant of the body"""
    proto = loop([node("MatMul", "v w", "p"), node("Tanh", "p", "v2")], {"v": ("x", "v2", ["N", 3])}, "p", w=W)
    runtime = Runtime(proto, device="cpu", threads=1)
    for n in (5, 1, 40):
        check(proto, runtime, x=X, n=np.array(n))
    assert len(stages) == 2
    assert [len(plan.graph.inputs) for plan in runtime.plans] == [1]
    assert list(runtime.fallback) == ["l"]


def test_states_that_stay_are_constants():
    """The weights come in as a state that the body gives back as it is."""
    steps = [node("MatMul", "v k", "p"), node("Tanh", "p", "v2"), node("Identity", "k", "k2")]
    proto = loop(steps, {"v": ("x", "v2", ["N", 3]), "k": ("w", "k2", [3, 3])}, w=W)
    runtime = Runtime(proto, device="cpu", threads=1)
    results = check(proto, runtime, x=X, n=np.array(3))
    np.testing.assert_array_equal(results["last_k"], W)
    assert [plan.graph.inputs for plan in runtime.plans] == [("v",)]


def test_states_that_stay_and_are_computed_are_inputs():
    steps = [
        node("Add", "v k", "p"),
        node("Tanh", "p", "v2"),
        node("Identity", "k", "k1"),
        node("Identity", "k1", "k2"),
    ]
    proto = loop(steps, {"v": ("x", "v2", ["N", 3]), "k": ("x", "k2", ["N", 3])})
    check(proto, Runtime(proto, device="cpu", threads=1), x=X, n=np.array(3))


def test_no_rounds():
    proto = loop([node("Tanh", "v", "v2")], {"v": ("x", "v2", ["N", 3])}, "v2")
    results = Runtime(proto, device="cpu", threads=1).execute({"x": X, "n": np.array(0)})
    np.testing.assert_array_equal(results["last_v"], X)
    assert results["all_v2"].shape[0] == 0


def test_results_share_no_memory():
    proto = loop([node("Tanh", "v", "v2")], {"v": ("x", "v2", ["N", 3])}, "v2")
    results = check(proto, Runtime(proto, device="cpu", threads=1), x=X, n=np.array(4))
    assert not np.shares_memory(results["last_v"], results["all_v2"])


def test_a_state_that_grows_does_not_compile_without_end(stages):
    """Its readers run on the host once it has had a few shapes; the rest stays a program."""
    steps = [
        node("Concat", "g v", "g2", axis=0),
        node("ReduceMean", "g2", "m", axes=[0], keepdims=1),
        node("MatMul", "v w", "p"),
        node("Add", "p m", "q"),
        node("Tanh", "q", "v2"),
    ]
    proto = loop(steps, {"v": ("x", "v2", ["N", 3]), "g": ("x", "g2", [None, 3])}, w=W)
    runtime = Runtime(proto, device="cpu", threads=1)
    check(proto, runtime, x=X, n=np.array(40))
    assert len(stages) < 4 * MOST_SHAPES
    assert any(name.startswith("l/") for name in runtime.fallback)
    before = len(stages)
    check(proto, runtime, x=X, n=np.array(60))
    assert len(stages) == before


def sliced(counter: str) -> list[onnx.NodeProto]:
    """v2 ← tanh(v + table[counter : counter + 1])"""
    return [
        node("Unsqueeze", f"{counter} zero", "start"),
        node("Add", "start one", "end"),
        node("Slice", "table start end zero", "s"),
        node("Add", "v s", "p"),
        node("Tanh", "p", "v2"),
    ]


TABLE = {
    "zero": np.array([0]),
    "one": np.array([1]),
    "table": np.random.default_rng(2).random((50, 3), np.float32),
}


def test_the_number_of_the_round_is_no_key(stages):
    """Slices from i on: a program for each i would be one per round."""
    proto = loop(sliced("i"), {"v": ("x", "v2", ["N", 3])}, **TABLE)
    check(proto, Runtime(proto, device="cpu", threads=1), x=X, n=np.array(30))
    assert len(stages) <= 4


def test_the_number_of_the_round_around_is_no_key_either(stages):
    """The inner loop reads the outer one's number."""
    inner = graph(
        [node("Identity", "h", "h2"), *sliced("i")],
        [tensor("j", [], np.int64), tensor("h", [], bool), tensor("v", ["N", 3])],
        [tensor("h2", [], bool), tensor("v2", None)],
    )
    steps = [node("Loop", "two _ u", "u2", body=inner, name="inner")]
    proto = loop(steps, {"u": ("x", "u2", ["N", 3])}, two=np.array(2), **TABLE)
    check(proto, Runtime(proto, device="cpu", threads=1), x=X, n=np.array(30))
    assert len(stages) <= 6


def test_numbers_from_outside_are_keys_until_they_are_many(stages):
    """`n`, the number of rounds, is read in the body too."""
    proto = loop(sliced("n"), {"v": ("x", "v2", ["N", 3])}, **TABLE)
    runtime, made = Runtime(proto, device="cpu", threads=1), []
    for n in range(1, 31):
        check(proto, runtime, x=X, n=np.array(n))
        made.append(len(stages))
    assert made[-1] == made[15]
    assert "which change from round to round" in " ".join(runtime.fallback.values())


def test_programs_stay_while_their_loop_runs(stages):
    """With room for one program only, a body of two must not be compiled in each round."""
    steps = [node("MatMul", "v w", "a"), node("Unique", "a", "u"), node("ReduceMax", "u", "m"), node("Add", "a m", "b")]
    proto = loop([*steps, node("Tanh", "b", "v2")], {"v": ("x", "v2", ["N", 3])}, w=W)
    runtime = Runtime(proto, device="cpu", threads=1, keep_bytes=0)
    check(proto, runtime, x=X, n=np.array(20))
    assert 2 < len(stages) < 8


def test_sequences_are_states_too():
    """s ← s with v appended"""
    kind = onnx.helper.make_sequence_type_proto(onnx.helper.make_tensor_type_proto(1, None))
    ends = [
        tensor("i", [], np.int64),
        tensor("go", [], bool),
        onnx.ValueInfoProto(name="s", type=kind),
        tensor("v", ["N", 3]),
    ]
    steps = [node("Identity", "go", "go2"), node("Tanh", "v", "v2"), node("SequenceInsert", "s v2", "s2")]
    outs = [tensor("go2", [], bool), onnx.ValueInfoProto(name="s2", type=kind), tensor("v2", None)]
    nodes = [
        node("SequenceEmpty", "", "s0"),
        node("Loop", "n _ s0 x", "all last", body=graph(steps, ends, outs), name="l"),
        node("ConcatFromSequence", "all", "y", axis=0),
    ]
    proto = model(nodes, [tensor("x", ["N", 3]), tensor("n", [], np.int64)], "y last")
    check(proto, Runtime(proto, device="cpu", threads=1), x=X, n=np.array(5))


def test_loops_in_branches_in_loops(stages):
    """v ← i even ? (three times v ← tanh(v · w)) : -v"""
    inner = graph(
        [node("Identity", "h", "h2"), node("MatMul", "u w", "q"), node("Tanh", "q", "u2")],
        [tensor("j", [], np.int64), tensor("h", [], bool), tensor("u", ["N", 3])],
        [tensor("h2", [], bool), tensor("u2", None)],
    )
    then = graph([node("Loop", "three _ v", "a", body=inner, name="inner")], outputs="a")
    other = graph([node("Neg", "v", "b")], outputs="b")
    steps = [
        node("Mod", "i two", "r"),
        node("Equal", "r nought", "even"),
        node("If", "even", "v2", then_branch=then, else_branch=other, name="if"),
    ]
    proto = loop(steps, {"v": ("x", "v2", ["N", 3])}, "v2", w=W, three=np.array(3), two=np.array(2), nought=np.array(0))
    runtime = Runtime(proto, device="cpu", threads=1)
    check(proto, runtime, x=X, n=np.array(9))
    before = len(stages)
    check(proto, runtime, x=-X, n=np.array(9))
    assert len(stages) == before


def test_errors_name_the_node_inside():
    proto = loop([node("Add", "v odd", "v2", name="sum")], {"v": ("x", "v2", None)}, odd=np.zeros((4,), np.float32))
    with pytest.raises(BrickError, match=r"node 'l/sum'"):
        Runtime(proto, device="cpu", threads=1).execute({"x": X, "n": np.array(2)})


def test_what_is_stacked_has_one_type():
    proto = loop([node("Concat", "g g", "g2", axis=0)], {"g": ("x", "g2", [None, 3])}, "g2")
    with pytest.raises(BrickError, match=r"^Loop node 'l' fails on the host: .*round 1 gives"):
        Runtime(proto, device="cpu", threads=1).execute({"x": X, "n": np.array(3)})


def test_what_the_rounds_took_is_counted():
    proto = loop([node("MatMul", "v w", "p"), node("Tanh", "p", "v2")], {"v": ("x", "v2", ["N", 3])}, w=W)
    runtime = Runtime(proto, device="cpu", threads=1)
    runtime.execute({"x": X, "n": np.array(2)})
    few = runtime.stats.tasks
    runtime.execute({"x": X, "n": np.array(20)})
    assert few > 0 and runtime.stats.tasks == 10 * few
    assert runtime.stats.host_nodes.keys() == {"l"} and runtime.stats.compile_ms == 0
