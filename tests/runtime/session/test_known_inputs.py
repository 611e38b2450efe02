"""Inputs like those of the call before are not checked again; all others are."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.errors import BrickError
from brickrt.runtime.session import runtime as session
from brickrt.runtime.session.known_inputs import KnownInputs
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.onnx_models import model, node, tensor

A, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(3)
KNOWN = KnownInputs({"a": A, "b": B})


def test_inputs_alike_come_in_the_model_s_order():
    found = KNOWN.taken({"b": B + 1, "a": A})
    assert found is not None and list(found) == ["a", "b"]
    assert found["a"] is A and (found["b"] == B + 1).all()


class Subclass(np.ndarray):
    """An array of another kind."""


@pytest.mark.parametrize(
    "other",
    [
        {"a": A},
        {"a": A, "c": B},
        {"a": A, "b": B, "c": B},
        {"a": A[:1], "b": B},
        {"a": A.astype(np.float64), "b": B},
        {"a": np.asfortranarray(A), "b": B},
        {"a": A.view(Subclass), "b": B},
        {"a": A.tolist(), "b": B},
        [A, B],
    ],
)
def test_others_are_to_be_checked(other):
    assert KNOWN.taken(other) is None


def test_other_kinds_of_inputs_are_never_known():
    assert KnownInputs({"a": A, "s": [A]}).taken({"a": A, "s": [A]}) is None


def test_a_runtime_checks_what_it_does_not_know(monkeypatch):
    """x → unique → y, on the host"""
    checked: list[int] = []
    original = session.check_inputs
    monkeypatch.setattr(session, "check_inputs", lambda *given: checked.append(1) or original(*given))
    runtime = Runtime(model([node("Unique", "x", "y")], [tensor("x", ["N"])]), device="reference")
    for values in ([3, 1, 3], [2, 2, 2], [5, 4, 4, 5], [1, 0, 1, 0]):
        x = np.array(values, np.float32)
        np.testing.assert_array_equal(runtime.execute({"x": x})["y"], np.unique(x))
    assert len(checked) == 2
    with pytest.raises(BrickError, match="missing"):
        runtime.execute({})
    with pytest.raises(BrickError, match="dimensions"):
        runtime.execute({"x": A})
    runtime.close()
    with pytest.raises(BrickError, match="closed"):
        runtime.execute({"x": x})
