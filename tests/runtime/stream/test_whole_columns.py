"""What is computed of all rows for each column, of all channels of a pixel, or of all rows before."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import brickrt
from brickrt.graph.errors import BrickError
from brickrt.graph.passes import stitch
from tests.support.cpu.described import plan_for
from tests.support.cpu.streams import plan_of, planner_of, random_inputs, run_stream
from tests.support.graphs.onnx_models import model, node, tensor

F32 = np.float32
WEIGHTS = (np.random.default_rng(4).standard_normal((6, 3, 3, 3)) / 5).astype(F32)


def after_a_convolution(nodes: list[onnx.NodeProto], height: int = 101, width: int = 93, **values: object):
    """x ─ conv ─ a [1, 6, height, width] … y"""
    first = node("Conv", "x w", "a", pads=[1] * 4)
    arrays = {name: np.array(value) for name, value in values.items()}
    return model([first, *nodes], [tensor("x", [1, 3, height, width])], opset=18, w=WEIGHTS, **arrays)


NETWORKS = {
    "sums so far of columns": [node("CumSum", "a three", "y")],
    "sums so far of rows": [node("CumSum", "a two", "y", reverse=1)],
    "sums so far of channels": [node("CumSum", "a one", "y", exclusive=1)],
    "greatest channels": [node("TopK", "a k", "b i", axis=1), node("Cast", "i", "f", to=1), node("Add", "b f", "y")],
}


@pytest.mark.parametrize("name", NETWORKS)
def test_bits_are_those_of_the_network_run_whole(name: str) -> None:
    network = after_a_convolution(NETWORKS[name], one=1, two=2, three=3, k=[3])
    inputs, planner = random_inputs(network), planner_of(plan_of(network))
    wanted = brickrt.Runtime(network, device="cpu", exact=True, threads=2).execute(inputs)["y"]
    for rows, strips in ((8, (1,)), (13, (2,))):
        found = run_stream(planner.stream_plan(rows, strips), inputs, 2)["y"]
        np.testing.assert_array_equal(found, wanted, f"{rows} rows")


PROFILES = {
    "strip pooling": [
        node("ReduceMean", "a three", "h", keepdims=1),
        node("ReduceMean", "a two", "v", keepdims=1),
        node("Add", "h v", "s"),
        node("Mul", "s a", "y"),
    ],
    "greatest of columns": [node("ReduceMax", "a two", "y", keepdims=0)],
}


@pytest.mark.parametrize("name", PROFILES)
def test_sums_over_rows_are_kept_by_block(name: str) -> None:
    """The tensor itself, 8 MiB, is not whole."""
    network = after_a_convolution(PROFILES[name], 600, 600, two=[2], three=[3])
    planner, inputs = planner_of(plan_of(network)), random_inputs(network)
    whole = 6 * 600 * 600 * 4
    assert sum(planner.whole_bytes.values()) < whole / 4
    stream = planner.stream_plan(16)
    assert max(one.schedule.rows["x"].fresh for one in stream.sweeps) <= 64
    wanted = brickrt.Runtime(network, device="cpu", exact=True, threads=2).execute(inputs)["y"]
    np.testing.assert_array_equal(run_stream(stream, inputs, 2)["y"], wanted)


LARGE_COLUMNS = {
    "less their means": [node("ReduceMean", "a two", "m", keepdims=1), node("Sub", "a m", "y")],
    "gated": [node("ReduceMean", "a two", "m", keepdims=1), node("Sigmoid", "m", "g"), node("Mul", "a g", "y")],
    "softmax": [node("Softmax", "a", "y", axis=2)],
}


@pytest.mark.parametrize("name", LARGE_COLUMNS)
def test_columns_of_large_images_are_reduced_before_they_are_read_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a core sweeps in its cache otherwise, and had to be there whole."""
    monkeypatch.setattr(stitch, "LARGE_IMAGE_BYTES", 2**20)
    network = after_a_convolution(LARGE_COLUMNS[name], 600, 300, two=[2])
    planner, inputs = planner_of(plan_of(network)), random_inputs(network)
    assert sum(planner.whole_bytes.values()) < 6 * 600 * 300 * 4 / 2
    wanted = brickrt.Runtime(network, device="cpu", exact=True, threads=2).execute(inputs)["y"]
    for rows, strips in ((16, (1,)), (48, (2,))):
        np.testing.assert_array_equal(run_stream(planner.stream_plan(rows, strips), inputs, 2)["y"], wanted)


def test_group_norms_of_half_precision_keep_their_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """As exporters write them: a norm of a View, with one axis for each group, of float16."""
    plan_for(monkeypatch, l2=2**20)  # less than the image
    nodes = [
        node("Conv", "x w", "a", pads=[1] * 4),
        node("Reshape", "a groups", "g"),
        node("InstanceNormalization", "g one zero", "n"),
        node("Reshape", "n image", "i"),
        node("Mul", "i scale", "y"),
    ]
    shapes = {"groups": np.array([0, 2, -1]), "image": np.array([1, 6, 300, 400])}
    values = {"w": WEIGHTS, "one": np.ones(2), "zero": np.zeros(2), "scale": np.arange(6).reshape(6, 1, 1)}
    halves = {name: value.astype(np.float16) for name, value in values.items()}
    x, y = tensor("x", [1, 3, 300, 400], np.float16), tensor("y", None, np.float16)
    network = model(nodes, [x], [y], opset=17, **shapes, **halves)
    planner, inputs = planner_of(plan_of(network)), random_inputs(network)
    assert sum(planner.whole_bytes.values()) < 2**20  # of 3.7 MiB
    wanted = brickrt.Runtime(network, device="cpu", exact=True, threads=2).execute(inputs)["y"]
    np.testing.assert_array_equal(run_stream(planner.stream_plan(16), inputs, 2)["y"], wanted)


def test_what_numpy_sorts_is_refused_by_name() -> None:
    network = after_a_convolution([node("TopK", "a k", "y i", axis=3)], k=[17])
    with pytest.raises(BrickError, match=r"nodes 'TopK_1' \(TopK\) run on the host"):
        plan_of(network)
