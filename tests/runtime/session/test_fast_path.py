"""Calls like an earlier one, where rows of tables are looked up before the program runs.

ids ─ Gather(words) ─┐
kinds ─ Gather(types) ┴ Add ─ MatMul ─ y
"""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.errors import BrickError
from brickrt.runtime import events
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.onnx_models import by_onnxruntime, model, node, tensor

RANDOM = np.random.default_rng(4)
WORDS, TYPES, FACTOR = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((50, 16), (16, 2), (16, 24)))


def embedding(shown: str = ""):
    """`shown` is another output."""
    nodes = [
        node("Gather", "words ids", "a"),
        node("Gather", "types kinds", "b", axis=1),
        node("Transpose", "b", "c", perm=[1, 2, 0]),
        node("Add", "a c", "d"),
        node("MatMul", "d factor", "y"),
    ]
    inputs = [tensor("ids", [2, 5], np.int64), tensor("kinds", [2, 5], np.int32)]
    return model(nodes, inputs, outputs=f"y {shown}".strip(), words=WORDS, types=TYPES, factor=FACTOR)


def drawn(low: int = -50) -> dict[str, np.ndarray]:
    return {"ids": RANDOM.integers(low, 50, (2, 5)), "kinds": RANDOM.integers(-2, 2, (2, 5)).astype(np.int32)}


def check(runtime: Runtime, proto, feeds: dict[str, np.ndarray]) -> None:
    for name, value in by_onnxruntime(proto, feeds).items():
        np.testing.assert_allclose(runtime.execute(feeds)[name], value, rtol=1e-4, atol=1e-5)


def test_rows_are_looked_up_on_the_fast_path_and_reported_as_before(fast):
    proto, runtime = embedding(), Runtime(embedding())
    check(runtime, proto, drawn())
    plans, fallback, nodes = len(runtime.plans), runtime.fallback, set(runtime.stats.host_nodes)
    for _ in range(3):
        check(runtime, proto, drawn())
    assert fast == [True] * 3
    assert (len(runtime.plans), runtime.fallback, set(runtime.stats.host_nodes)) == (plans, fallback, nodes)
    assert len(nodes) == 2 and runtime.stats.host_ms > 0


@pytest.mark.parametrize("wrong", [50, -51, 2**40])
def test_a_row_that_is_not_there_is_said_on_every_way(fast, wrong: int):
    proto, runtime = embedding(), Runtime(embedding())
    for _ in range(2):
        feeds = drawn()
        feeds["ids"][1, 3] = wrong
        with pytest.raises(BrickError, match=rf"Gather node .* fails on the host for .*index {wrong} is out of bounds"):
            runtime.execute(feeds)
        check(runtime, proto, drawn())
    assert fast == [False, True]


def test_an_element_is_looked_up_by_one_number(fast):
    """As a factor of a step is in networks that remove noise."""
    nodes = [node("Gather", "alphas t", "a"), node("Mul", "x a", "y")]
    inputs = [tensor("x", [64]), tensor("t", [], np.int64)]
    proto = model(nodes, inputs, outputs="y", alphas=WORDS[0])
    runtime = Runtime(proto)
    for step in (3, 0, 15):
        check(runtime, proto, {"x": RANDOM.standard_normal(64).astype(np.float32), "t": np.array(step)})
    assert fast == [True] * 2


def test_other_shapes_and_given_outputs(fast):
    proto, runtime = embedding(), Runtime(embedding())
    check(runtime, proto, drawn())
    feeds, y = drawn(), np.empty((2, 5, 24), np.float32)
    assert runtime.execute(feeds, outputs={"y": y})["y"] is y
    np.testing.assert_allclose(y, by_onnxruntime(proto, feeds)["y"], rtol=1e-4, atol=1e-5)
    assert fast == [True]


def test_what_is_looked_up_may_be_an_output_and_observers_see_all(fast):
    class Watching(events.Observer):
        """Notes the nodes that it is told of."""

        def __init__(self) -> None:
            self.nodes = list[str]()

        def hosted(self, node: str, start: int, end: int) -> None:
            self.nodes += [node] * bool(end)

    proto, runtime = embedding("a"), Runtime(embedding("a"))
    for _ in range(2):
        check(runtime, proto, drawn())
    watching = Watching()
    runtime = Runtime(embedding(), watch=watching)
    for _ in range(2):
        check(runtime, embedding(), drawn())
    assert len(watching.nodes) == 4 and not any(fast)
