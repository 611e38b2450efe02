"""What would take more memory or time than there is, is refused before any of it is spent, with the node's name."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.fuzz.case_runner import CaseRunner
from tests.support.graphs.onnx_models import model, node, tensor

IMAGE = [tensor("x", [1, 4, 8, 8])]
PAIR = [tensor("x", [2])]
SECONDS = 3.0  # of processor time


def i(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


GRAMS = {
    "min_gram_length": 1,
    "max_gram_length": 1,
    "max_skip_count": 0,
    "ngram_counts": [0],
    "ngram_indexes": [0, 1 << 31],
    "pool_int64s": [2, 3],
}
HUGE = {
    "constant": model([node("ConstantOfShape", "s", "y", name="n")], s=i(1 << 31)),
    "summed": model([node("ConstantOfShape", "s", "c", name="n"), node("ReduceSum", "c", "y")], s=i(1 << 31)),
    "nothing summed": model(
        [node("ConstantOfShape", "s", "c"), node("ReduceMean", "c", "y", name="n", axes=[0], keepdims=0)],
        s=i(0, 65536, 10**7),
    ),
    "range": model([node("Range", "a b c", "y", name="n")], a=i(0)[0], b=i(1 << 40)[0], c=i(1)[0]),
    "one hot": model(
        [node("OneHot", "x d v", "y", name="n")], [tensor("x", [4], np.int64)], d=i(1 << 40), v=np.float32([0, 1])
    ),
    "pads": model([node("Pad", "x p", "y", name="n")], PAIR, p=i(1 << 31, 0)),
    "window's pads": model([node("MaxPool", "x", "y", name="n", kernel_shape=[2, 2], pads=[1 << 31] * 4)], IMAGE),
    "tile": model([node("Tile", "x r", "y", name="n")], PAIR, r=i(1 << 31)),
    "expand": model(
        [node("Expand", "x r", "e", name="n"), node("ReduceMax", "e", "y")], [tensor("x", [1])], r=i(1 << 33)
    ),
    "resize": model([node("Resize", "x _ _ s", "y", name="n")], IMAGE, s=i(1, 4, 1 << 30, 1)),
    "random": model([node("RandomNormal", "", "y", name="n", shape=[1 << 40])]),
    "window": model([node("BlackmanWindow", "k", "y", name="n")], k=i(1 << 40)[0]),
    "grams": model([node("TfIdfVectorizer", "x", "y", name="n", mode="TF", **GRAMS)], [tensor("x", [4], np.int64)]),
    "after the host": model(
        [
            node("NonZero", "x", "z"),
            node("Shape", "z", "s"),
            node("Mul", "s k", "t"),
            node("ConstantOfShape", "t", "y", name="n"),
        ],
        [tensor("x", [2, 2])],
        k=i(1 << 20, 1 << 20),
    ),
}


@pytest.mark.parametrize("name", HUGE)
def test_refused_before_anything_is_spent(worker: CaseRunner, name: str):
    word, text = worker.run((HUGE[name].SerializeToString(), "cpu"))
    assert word == "refused", text
    assert "'n'" in text and ("bytes" in text or "larger than" in text), text
    assert worker.spent < SECONDS


@pytest.mark.parametrize("size", [10**7, 1 << 62])
def test_a_norm_over_more_channels_than_there_are(worker: CaseRunner, size: int):
    proto = model([node("LRN", "x", "y", size=size)], IMAGE)
    assert worker.run((proto.SerializeToString(), "cpu")) == ("ran", "")


ONE = onnx.numpy_helper.from_array(np.int32([1]))
LONG = {
    "products of whole numbers": (
        [node("ConstantOfShape", "s", "c", value=ONE), node("Gemm", "c c", "y", name="n")],
        i(1, 1, 3000, 3000),
        "cpu",
    ),
    "a window of many taps": (
        [node("ConstantOfShape", "s", "c"), node("Conv", "c c", "y", name="n", pads=[1] * 4)],
        i(1, 1, 1500, 1500),
        "reference",
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_what_would_take_long_is_refused(worker: CaseRunner, name: str):
    """NumPy is busy with one call for minutes, or Python with a loop."""
    nodes, shape, device = LONG[name]
    word, text = worker.run((model(nodes, s=shape).SerializeToString(), device))
    assert word == "refused" and "a run with a model and inputs of" in text, text


@pytest.mark.parametrize("count", [0, 3, 1 << 31])
def test_more_scanned_inputs_than_there_are(worker: CaseRunner, count: int):
    body = onnx.helper.make_graph([node("Identity", "a", "b")], "body", [tensor("a", [2])], [tensor("b", [2])])
    proto = model([node("Scan", "x", "y", name="n", body=body, num_scan_inputs=count)], [tensor("x", [3, 2])])
    word, text = worker.run((proto.SerializeToString(), "cpu"))
    assert word == "refused" and f"num_scan_inputs {count} is outside 1 to its 1 inputs" in text, text
