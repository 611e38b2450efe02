"""Small nodes in NumPy directly give what ONNX's reference gives, or leave them to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.graph.errors import BrickError
from brickrt.graph.host import quick, run_host_node
from brickrt.graph.host.quick import QUICK_ELEMENTS, quick_outputs
from brickrt.graph.host.run_host_node import run_node
from brickrt.graph.onnx_import.protobuf import onnx_node
from tests.support.graphs.onnx_models import node

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
LONG = np.array([5, 2, -7])


def i(*values: int, dtype: type = np.int64) -> np.ndarray:
    return np.array(values, dtype)


def s(value: int) -> np.ndarray:
    return np.array(value)


CASES = {
    "gather": (node("Gather", "a b", "y", axis=1), [X, i(2, -1)]),
    "gather one": (node("Gather", "a b", "y", axis=-1), [X, s(-2)]),
    "gather matrix": (node("Gather", "a b", "y"), [X, np.array([[1, 0]], np.int32)]),
    "gather elements": (node("GatherElements", "a b", "y", axis=2), [X, np.array([[[0, -1]], [[3, 2]]])]),
    "gather parts": (node("GatherND", "a b", "y"), [X, np.array([[[1, -1]], [[0, 2]]])]),
    "gather rows": (node("GatherND", "a b", "y"), [X, np.array([[[1], [-2]]], np.int32)]),
    "gather whole positions": (node("GatherND", "a b", "y"), [X, i(1, 2, 3)]),
    "not zero": (node("NonZero", "a", "y"), [X > 20]),
    "nothing but zero": (node("NonZero", "a", "y"), [X[:, :0]]),
    "greatest": (node("TopK", "a b", "y z", axis=1), [np.float32([[3, 7, 7, np.nan, -1], [0, 0, 0, 0, 0]]), i(4)]),
    "least": (node("TopK", "a b", "y z", axis=0, largest=0), [X[::-1] % 7, i(1)]),
    "none": (node("TopK", "a b", "y z"), [X, i(0)]),
    "points": (
        node("GridSample", "a b", "y", mode="bicubic", padding_mode="border", align_corners=1),
        [
            np.sin(np.arange(360, dtype=np.float32)).reshape(1, 10, 6, 6),
            np.cos(np.arange(80, dtype=np.float32)).reshape(1, 8, 5, 2),
        ],
    ),
    "cumulative sum": (node("CumSum", "a b", "y"), [np.array([[1, 2, 3], [4, 5, 6]], np.int32), s(1)]),
    "cumulative sum that overflows": (
        node("CumSum", "a b", "y"),
        [np.array([[2**31 - 1, 2], [4, 5]], np.int32), s(-2)],
    ),
    "slice": (node("Slice", "a b c d", "y"), [X, i(1, 0), i(99, 2), i(-1, 0)]),
    "slice backwards": (node("Slice", "a b c d e", "y"), [X, i(-1), i(-(2**62)), i(2), i(-2)]),
    "slice all axes": (node("Slice", "a b c", "y"), [X, i(1, 1, 1), i(2, 3, 4)]),
    "range": (node("Range", "a b c", "y"), [s(7), s(-3), s(-2)]),
    "range of nothing": (node("Range", "a b c", "y"), [s(3), s(3), s(1)]),
    "concat": (node("Concat", "a b a", "y", axis=1), [X, X[:, :1]]),
    "expand": (node("Expand", "a b", "y"), [X[:, :1], i(2, 1, 3, 1)]),
    "expand to a shape without ones": (node("Expand", "a b", "y"), [X[:, :1], i(2, 2, 3, 4)]),
    "expand a number": (node("Expand", "a b", "y"), [X[0, 0, :1], i(0)]),
    "unsqueeze": (node("Unsqueeze", "a b", "y"), [X, i(-1, 0)]),
    "squeeze": (node("Squeeze", "a b", "y"), [X[:, :1, :1], i(-2)]),
    "scatter": (
        node("ScatterElements", "a b c", "y", axis=1),
        [X, np.array([[[0, -1]]]), np.full((1, 1, 2), 9, np.float32)],
    ),
    "some": (node("Compress", "a b", "y", axis=1), [X, np.array([False, True, True])]),
    "some of all": (node("Compress", "a b", "y"), [X, np.array([False, True, True])]),
    "reversed": (node("ReverseSequence", "a b", "y"), [X, i(2, 0, 1)]),
    "reversed rows": (node("ReverseSequence", "a b", "y", batch_axis=0, time_axis=1), [X[0], i(1, 3, 4)]),
    "scatter sums": (
        node("ScatterElements", "a b c", "y", axis=1, reduction="add"),
        [X, np.array([[[0, -1]] * 3]), np.full((1, 3, 2), 9, np.float32)],
    ),
    "scatter parts": (node("ScatterND", "a b c", "y"), [X, np.array([[1], [-2]]), X[::-1] + 1]),
    "scatter products": (
        node("ScatterND", "a b c", "y", reduction="mul"),
        [X, np.array([[1, 2], [1, -1], [0, 0]]), X[0] + 1],
    ),
    "add": (node("Add", "a b", "y"), [LONG, s(3)]),
    "add many": (node("Add", "a b", "y"), [np.arange(1000), np.arange(1000)[:, None][:200]]),
    "sub": (node("Sub", "a b", "y"), [s(4), s(3)]),
    "mul": (node("Mul", "a b", "y"), [LONG, LONG]),
    "overflow": (node("Add", "a b", "y"), [i(127, dtype=np.int8), i(1, dtype=np.int8)]),
    "equal": (node("Equal", "a b", "y"), [X, X[:1]]),
    "less": (node("Less", "a b", "y"), [s(1), s(2)]),
    "greater": (node("Greater", "a b", "y"), [np.float32([np.nan, 1]), np.float32([0, 0])]),
    "and": (node("And", "a b", "y"), [np.array([True, False]), np.array(True)]),
    "or": (node("Or", "a b", "y"), [np.array([True, False]), np.array(False)]),
    "not": (node("Not", "a", "y"), [np.array(True)]),
}


def made(name: str):
    proto, arrays = CASES[name]
    return onnx_node(proto, {"": 17}, "n"), dict(zip("abc de".replace(" ", ""), arrays))


@pytest.mark.parametrize("name", CASES)
def test_as_the_reference_has_it(name, monkeypatch):
    one, arrays = made(name)
    found = quick_outputs(one, arrays)
    assert found is not None and len(found) == len(one.outputs)
    monkeypatch.setattr(run_host_node, "quick_outputs", lambda *_: None)
    for value, wanted in zip(found, run_node(one, {"": 17}, arrays), strict=True):
        assert isinstance(value, np.ndarray) and (value.dtype, value.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(value, wanted)


def test_all_that_are_quick_are_compared():
    assert {CASES[name][0].op_type for name in CASES} == quick._QUICK.keys()


WRONG = {
    "an index outside": (node("Gather", "a b", "y"), [X, i(7)]),
    "an element outside": (node("GatherElements", "a b", "y"), [X, np.array([[[7]]])]),
    "more to choose from than there are": (node("Compress", "a b", "y", axis=0), [X, np.ones(3, bool)]),
    "elements of a number": (node("GatherElements", "a b", "y"), [s(1), s(0)]),
    "an extent that does not fit": (node("Expand", "a b", "y"), [X, i(2, 2, 4)]),
    "a part outside": (node("ScatterND", "a b c", "y"), [X, np.array([[2]]), X[:1]]),
    "a part outside, summed": (node("ScatterND", "a b c", "y", reduction="add"), [X, np.array([[2]]), X[:1]]),
    "a sum along no axis": (node("CumSum", "a b", "y"), [LONG, s(3)]),
    "a sum along a list": (node("CumSum", "a b", "y"), [LONG, i(0)]),
    "more than there are": (node("TopK", "a b", "y z"), [X, i(5)]),
    "other ranks": (node("Concat", "a b", "y", axis=0), [X, X[0]]),
    "a step of 0": (node("Slice", "a b c d e", "y"), [X, i(0), i(1), i(0), i(0)]),
    "shapes that do not fit": (node("Add", "a b", "y"), [i(1, 2), i(1, 2, 3)]),
    "an axis that is there": (node("Squeeze", "a b", "y"), [X, i(1)]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_as_before(name):
    proto, arrays = WRONG[name]
    one, values = onnx_node(proto, {"": 17}, "n"), dict(zip("abcde", arrays))
    assert quick_outputs(one, values) is None
    with pytest.raises(BrickError, match="node 'n' fails on the host"):
        run_node(one, {"": 17}, values)


@pytest.mark.parametrize(
    ("proto", "arrays"),
    [
        (node("Add", "a b", "y"), [X, X]),
        (node("Concat", "a b", "y", axis=0), [np.zeros(QUICK_ELEMENTS), np.zeros(1)]),
        (node("Range", "a b c", "y"), [s(0), s(1 << 60), s(1)]),
        (node("Gather", "a b", "y"), [np.array(["x"], object), i(0)]),
        (node("CumSum", "a b", "y"), [X, s(0)]),
        (node("CumSum", "a b", "y", reverse=1), [LONG, s(0)]),
        (node("CumSum", "a b", "y", exclusive=1), [LONG, s(0)]),
        (node("Not", "a", "y _"), [np.array(True)]),
        (node("Relu", "a", "y"), [X]),
    ],
    ids=[
        "floats",
        "large",
        "endless",
        "texts",
        "sums of floats",
        "from the end",
        "without the own",
        "more outputs",
        "others",
    ],
)
def test_what_is_left_to_the_reference(proto, arrays):
    assert quick_outputs(onnx_node(proto, {"": 17}, "n"), dict(zip("abc", arrays))) is None


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(-6, 6), st.integers(-6, 6), st.sampled_from([-3, -2, -1, 1, 2, 3])), max_size=3))
def test_slices(spans):
    one = onnx_node(node("Slice", "a b c d e", "y"), {"": 17}, "n")
    columns = [np.array(c, np.int64) for c in (zip(*spans, strict=True) if spans else ([], [], []))]
    arrays = dict(zip("abcde", [X, columns[0], columns[1], np.arange(len(spans)), columns[2]]))
    begins = [max(first, -extent) if step < 0 else first for (first, _, step), extent in zip(spans, X.shape)]
    wanted = X[tuple(slice(first, *span[1:]) for first, span in zip(begins, spans))]
    found = quick_outputs(one, arrays)
    assert found is not None and not np.shares_memory(found[0], X)
    np.testing.assert_array_equal(found[0], wanted)
