"""What goes wrong with a node is a BrickError that names it; what nobody foresaw is called a defect."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.builder import _BUILDERS
from brickrt.graph.errors import BrickError, Defect, callers_own, last_resort
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.onnx_models import model, node, tensor

RELU = model([node("Relu", "x", "y", name="n")], [tensor("x", [2])])
X = {"x": np.ones(2, np.float32)}


def raising(error: Exception):
    def builder(*given: object) -> str:
        raise error

    return builder


def test_an_unforeseen_error_names_the_node(monkeypatch):
    monkeypatch.setitem(_BUILDERS, ("", "Relu"), raising(IndexError("far out")))
    with pytest.raises(Defect, match=r"Relu node 'n' with 'x' float32\[2\]: IndexError: far out.*report") as caught:
        Runtime(RELU, device="reference").execute(X)
    assert isinstance(caught.value.__cause__, IndexError)


@pytest.mark.parametrize("error", [MemoryError(), OSError(12, "no room")], ids=["memory", "mapping"])
def test_memory_that_runs_out_is_no_defect(monkeypatch, error):
    monkeypatch.setitem(_BUILDERS, ("", "Relu"), raising(error))
    with pytest.raises(BrickError, match=r"'n'.*memory ran out") as caught:
        Runtime(RELU, device="reference").execute(X)
    assert not isinstance(caught.value, Defect)


def test_memory_for_outputs_that_runs_out_is_no_defect(monkeypatch):
    """In the first call, and in further ones, which take a shorter way."""

    def none_left(*given: object, **more: object) -> None:
        raise MemoryError

    runtime = Runtime(RELU, device="cpu", threads=1)
    runtime.prepare(X)
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(np, "empty", none_left)
            with pytest.raises(BrickError, match=r"outputs '?y'?: memory ran out") as caught:
                runtime.execute(X)
        assert not isinstance(caught.value, Defect)
        runtime.execute(X)


def test_what_is_empty_but_endless_is_no_defect():
    shape = np.array([0, 1 << 62, 1 << 62])
    proto = model([node("Reshape", "x s", "y", name="n", allowzero=1)], [tensor("x", [0])], s=shape)
    with pytest.raises(BrickError, match=r"'n'.*larger than memory can be") as caught:
        Runtime(proto, device="reference").execute({"x": np.zeros(0, np.float32)})
    assert not isinstance(caught.value, Defect)


@pytest.mark.parametrize("count", [33, 64])
@pytest.mark.parametrize("source", ["x", "c"])
@pytest.mark.parametrize("op", ["Expand", "Reshape"])
def test_more_dimensions_than_numpy_broadcasts_are_no_defect(op, source, count):
    """A computed tensor, and a constant, which may have them until something else than moves it reads it."""
    shape, nodes = np.array([1] * (count - 1) + [2]), [node(op, f"{source} s", "z", name="n"), node("Add", "z x", "y")]
    proto = model(nodes, [tensor("x", [2])], s=shape, c=np.ones(2, np.float32))
    with pytest.raises(BrickError, match=f"of {count} dimensions has more than 32: use fewer") as caught:
        Runtime(proto, device="reference").execute(X)
    assert not isinstance(caught.value, Defect)


def test_what_a_callers_function_raises_goes_on_as_it_is():
    def progress(*said: object) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        Runtime(RELU, device="cpu", progress=progress).execute(X)
    with pytest.raises(LookupError), last_resort(lambda: "a test"), callers_own():
        raise LookupError


def test_keyboard_interrupts_go_on():
    with pytest.raises(KeyboardInterrupt), last_resort(lambda: "a test"):
        raise KeyboardInterrupt
