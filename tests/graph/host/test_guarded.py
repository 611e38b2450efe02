"""Nodes of the reference ask for memory and for leave to go on, in loops too, before they run."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from brickrt.graph import room
from brickrt.graph.errors import BrickError
from brickrt.graph.host import evaluator  # noqa: F401  (registers the operators)
from brickrt.graph.host.host_operator import operator_of
from brickrt.runtime.program_protocol import Cancelled
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.onnx_models import graph, model, node, tensor

MIB = 1 << 20


def loop(*nodes, results: str):
    """A loop over a state `s` [n] whose body has these nodes; an input decides the number of rounds."""
    ends = [tensor("i", [], np.int64), tensor("going", [], bool), tensor("s", ["N"])]
    body = graph([node("Identity", "going", "go2"), *nodes], ends, f"go2 {results}")
    outputs = "last" if len(results.split()) == 1 else "last all"
    return model(
        [node("Loop", "n _ x", outputs, body=body, name="l")], [tensor("x", ["N"]), tensor("n", [], np.int64)], outputs
    )


@pytest.fixture
def little(monkeypatch):
    monkeypatch.setattr(room, "available_bytes", lambda: 64 * MIB)


@pytest.mark.usefixtures("little")
def test_a_loop_that_collects_more_than_there_is_room_for():
    proto = loop(node("Identity", "s", "s2"), results="s2 s2")
    runtime, x = Runtime(proto, device="reference"), np.ones(MIB // 4, np.float32)
    assert runtime.execute({"x": x, "n": np.int64(8)})["all"].shape == (8, MIB // 4)
    with pytest.raises(BrickError, match=r"^Loop node 'l', after \d+ rounds, collects outputs which takes"):
        runtime.execute({"x": x, "n": np.int64(1 << 40)})


@pytest.mark.usefixtures("little")
def test_a_state_that_doubles_in_every_round():
    proto = loop(node("Concat", "s s", "s2", axis=0, name="c"), results="s2")
    runtime = Runtime(proto, device="reference")
    assert runtime.execute({"x": np.ones(1, np.float32), "n": np.int64(10)})["last"].shape == (1024,)
    with pytest.raises(BrickError, match=r"^Concat node 'c', with all that it needs .*takes \d+ bytes"):
        runtime.execute({"x": np.ones(1, np.float32), "n": np.int64(60)})


@pytest.mark.usefixtures("little")
def test_a_scan_that_collects_more_than_there_is_room_for():
    body = graph([node("Identity", "a", "b"), node("Expand", "a wide", "c")], [tensor("a", [1])], "c")
    body.node.pop(0)
    proto = model([node("Scan", "x", "y", body=body, num_scan_inputs=1, name="s")], [tensor("x", [64, 1])], wide=[MIB])
    with pytest.raises(BrickError, match=r"^Scan node 's', after \d+ rounds, collects"):
        Runtime(proto, device="reference").execute({"x": np.ones((64, 1), np.float32)})


def test_a_loop_can_be_cancelled():
    runtime = Runtime(loop(node("Neg", "s", "s2"), results="s2"), device="reference")
    stop = threading.Timer(0.3, runtime.cancel)
    stop.start()
    with pytest.raises(Cancelled):
        runtime.execute({"x": np.ones(2, np.float32), "n": np.int64(1 << 60)})
    assert runtime.execute({"x": np.ones(2, np.float32), "n": np.int64(3)})["last"].tolist() == [-1, -1]


def f(*shape: int) -> np.ndarray:
    return np.empty(shape, np.float32)


def i(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


IMAGE = f(2, 3, 8, 10)
COUNTS = {
    "add": (node("Add", "a b", "y"), [f(1000, 1), f(1, 2000)], 2_000_000),
    "expand": (node("Expand", "a b", "y"), [f(3, 1), i(2, 1, 5)], 30),
    "tile": (node("Tile", "a b", "y"), [f(3, 2), i(4, 5)], 120),
    "range": (node("Range", "a b c", "y"), [i(0)[0], i(10)[0], i(3)[0]], 4),
    "pad": (node("Pad", "a b", "y"), [f(3, 2), i(1, 0, 1, 3)], 25),
    "pad some": (node("Pad", "a b _ c", "y"), [f(3, 2), i(5, 5), None, i(-1)], 36),
    "resize": (node("Resize", "a _ s", "y"), [IMAGE, None, np.float32([1, 1, 2, 0.5])], 2 * 3 * 16 * 5),
    "sizes": (node("Resize", "a _ _ s", "y"), [IMAGE, None, None, i(2, 3, 4, 4)], 96),
    "stft": (node("STFT", "a b _ c", "y"), [f(1, 128, 1), i(8)[0], None, i(16)[0]], 2 * 15 * 16),
    "transposed": (
        node("ConvTranspose", "a b", "y", strides=[3, 3]),
        [IMAGE, f(3, 4, 2, 2)],
        2 * 4 * (7 * 3 + 2) * (9 * 3 + 2),
    ),
    "matmul": (node("MatMul", "a b", "y"), [f(5, 1, 3, 4), f(7, 4, 6)], 5 * 7 * 18),
    "gather": (node("Gather", "a b", "y", axis=1), [f(3, 4), np.zeros((5, 6), np.int64)], 90),
    "unpool": (node("MaxUnpool", "a b", "y", kernel_shape=[2, 2], strides=[2, 2]), [IMAGE, IMAGE], 6 * 16 * 20),
    "col2im": (node("Col2Im", "a b c", "y"), [f(1, 5, 5), i(5, 5), i(1, 5)], 25),
    "one hot": (node("OneHot", "a b c", "y"), [f(4), i(9)[0], f(2)], 36),
    "broken": (node("Tile", "a", "y"), [f(3)], 0),
}


@pytest.mark.parametrize("name", COUNTS)
def test_elements_that_a_node_will_give(name):
    proto, arrays, count = COUNTS[name]
    assert operator_of(proto).most_elements(proto, arrays) == count
