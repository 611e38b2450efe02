"""States that a loop appends to, beside ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from brickrt.graph.errors import BrickError
from brickrt.runtime.execution.control import appended
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.onnx_models import by_onnxruntime, graph, model, node, tensor

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
DEEP = {"then_branch": graph([node("Relu", "g", "t")], [], [tensor("t", None)])}
DEEP["else_branch"] = graph([node("Neg", "v", "e")], [], [tensor("e", None)])


def appending(steps: list[onnx.NodeProto], outputs: str, inputs: str = "v g", given: str = "x x") -> onnx.ModelProto:
    """v ← tanh(v) beside other `steps`, for `n` rounds or until the largest of v is below `least`. `outputs` are the
    next values of the states, and what is stacked."""
    largest = [node("ReduceMax", "v2", "top", keepdims=0), node("Greater", "top least", "go2")]
    ends = [tensor("i", [], np.int64), tensor("go", [], bool), *(tensor(name, [None, None]) for name in inputs.split())]
    results = [tensor("go2", [], bool), *(tensor(name, [None, None]) for name in outputs.split())]
    body = graph([node("Tanh", "v", "v2"), *largest, *steps], ends, results)
    names = " ".join(f"y{k}" for k in range(len(outputs.split())))
    made = node("Loop", f"n _ {given}", names, body=body, name="l")
    return model([made], [tensor("x", ["N", 3]), tensor("n", [], np.int64), tensor("least", [])], names)


BODIES = {
    "behind": appending([node("Concat", "g v2", "g2", axis=0)], "v2 g2"),
    "in front, along columns": appending([node("Concat", "v2 g", "g2", axis=-1)], "v2 g2"),
    "around": appending([node("Concat", "v2 x g v v2", "g2", axis=0)], "v2 g2"),
    "what is stacked too": appending([node("Concat", "g v2", "g2", axis=0)], "v2 g2 v2 v"),
    "two, the first of them not the last": appending(
        [node("Concat", "a v2", "a2", axis=0), node("Concat", "v g", "g2", axis=0)], "a2 v2 g2", "a v g", "x x x"
    ),
    "one that another reads": appending(
        [node("Concat", "a g", "a2", axis=0), node("Concat", "g v", "g2", axis=0)], "v2 a2 g2", "v a g", "x x x"
    ),
    "read inside": appending(
        [node("Concat", "g v2", "g2", axis=0), node("If", "go", "deep", **DEEP)], "v2 g2 v", "v g"
    ),
    "swapped": appending([node("Concat", "g v2", "g2", axis=0)], "g2 v2"),
    "twice": appending([node("Concat", "g v2", "g2", axis=0)], "v2 g2 g2", "v g h", "x x x"),
    "itself": appending([node("Concat", "g g", "g2", axis=0)], "v2 g2"),
}
FOUND = {"behind": 1, "in front, along columns": 1, "around": 1, "what is stacked too": 1} | {
    "two, the first of them not the last": 2,
    "one that another reads": 1,
}


@pytest.mark.parametrize("name", BODIES)
def test_states_are_what_they_were_when_each_round_joined_them(name, monkeypatch):
    found, original = [], appended.Parts.result
    monkeypatch.setattr(appended.Parts, "result", lambda self: found.append(self) or original(self))
    runtime = Runtime(BODIES[name], device="cpu", threads=1)
    for n, least in ((0, 0.0), (1, 0.0), (7, 0.0), (7, 0.6), (3, 9.0)):
        arrays = {"x": X, "n": np.array(n), "least": np.array(least, np.float32)}
        found.clear()
        results = runtime.execute(arrays)
        assert len(found) == FOUND.get(name, 0)
        for key, value in by_onnxruntime(BODIES[name], arrays).items():
            np.testing.assert_allclose(results[key], value, rtol=1e-6, atol=1e-6)


def test_what_cannot_be_joined_is_refused():
    proto = appending([node("Transpose", "v2", "w"), node("Concat", "g w", "g2", axis=0)], "v2 g2")
    with pytest.raises(BrickError, match=r"^Loop node 'l' fails on the host: "):
        Runtime(proto, device="cpu", threads=1).execute({"x": X, "n": np.array(2), "least": np.float32(0)})
