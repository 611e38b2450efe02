"""Networks that run in bands compute the bits of those that run whole; without `exact`, almost."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import brickrt
from brickrt import zoo
from brickrt.graph.errors import BrickError
from brickrt.graph.host import static_values
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.partial_moments import PartialMoments
from brickrt.plan.cost.strassen import PAIRED
from brickrt.plan.stream import band_plan, row_axes
from brickrt.plan.stream.band_storage import LARGE_SAVED_SHARE, SMALL_SAVED_SHARE
from brickrt.runtime.cpu import page_moves
from brickrt.runtime.cpu.page_moves import PageMover
from brickrt.zoo.networks import resnet50
from tests.support.cpu.described import plan_for
from tests.support.cpu.schemes import needs_schemes
from tests.support.cpu.streams import plan_of, planner_of, random_inputs, run_stream
from tests.support.graphs.onnx_models import model, node, tensor
from tests.support.random_networks import random_network
from tests.support.zoo_networks import slim

F32 = np.float32
RANDOM = np.random.default_rng(7)
WEIGHTS = RANDOM.standard_normal((40, 70)).astype(np.float32)  # of products with paired elements
HEIGHTS = st.sampled_from([1, 2, 3, 5, 8, 100])


def check_equal(network: onnx.ModelProto, rows: int, threads: int, refused: bool = False) -> None:
    """In bands of `rows` rows, with memory overwritten before each, the bits are those of the network run whole."""
    plan, inputs = plan_of(network, threads=threads), random_inputs(network)
    try:
        stream = planner_of(plan).stream_plan(rows, saved=LARGE_SAVED_SHARE if threads % 2 else SMALL_SAVED_SHARE)
    except BrickError:
        assume(not refused)
        raise
    found = run_stream(stream, inputs, threads)
    for name, wanted in brickrt.Runtime(network, device="cpu", exact=True, threads=threads).execute(inputs).items():
        np.testing.assert_array_equal(found[name], wanted, f"{name} in bands of {rows} rows, {threads} threads")


@settings(max_examples=5, deadline=None, derandomize=True)
@given(st.integers(0, 2**20), HEIGHTS, st.integers(1, 3))
def test_images_and_volumes(seed: int, rows: int, threads: int) -> None:
    check_equal(random_network(random.Random(seed)), rows, threads, refused=True)


@settings(max_examples=3, deadline=None, derandomize=True)
@given(st.integers(0, 2**20), st.integers(1, 600), HEIGHTS)
@example(13, 298, 5)  # averages, whose windows are whole in one band and cut off in another
@example(142, 16, 3)  # a product that bands cut in columns of several widths
def test_signals(seed: int, extent: int, rows: int) -> None:
    """[N, C, L], swept along L."""
    check_equal(random_network(random.Random(seed), extents=(extent,)), rows, 2, refused=True)


@settings(max_examples=3, deadline=None, derandomize=True)
@given(st.integers(0, 2**20), st.integers(40, 150), st.sampled_from([1, 7, 16, 64]))
@example(217, 40, 1)  # an output that is another one too
def test_many_rows(seed: int, extent: int, rows: int) -> None:
    """So many that bands are alike, and rings move."""
    check_equal(random_network(random.Random(seed), extents=(extent, 7)), rows, 2, refused=True)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux moves pages")
def test_rings_whose_pages_move(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = []
    shift_down = PageMover.shift_down
    monkeypatch.setattr(page_moves, "LEAST_MOVED_BYTES", 1)
    monkeypatch.setattr(PageMover, "shift_down", lambda *a: (moved.append(a[2:]), shift_down(*a)))
    check_equal(zoo.build("unet", size=(320, 64), width=8, levels=2), 16, 2)
    assert len(set(moved)) > 2


# ---- what random networks hardly have


def weights(*shape: int) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(F32)


def test_sums_over_large_images() -> None:
    """Images that exceed a core's cache leave a number per row and channel; each norm or gate ends a pass."""
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        node("InstanceNormalization", "a one zero", "b"),
        node("Conv", "b v", "c", pads=[2, 2, 2, 2], dilations=[2, 2]),
        node("GroupNormalization", "c one zero", "d", num_groups=4),
        node("GlobalAveragePool", "d", "e"),
        node("Conv", "e g", "f"),
        node("Sigmoid", "f", "s"),
        node("Mul", "d s", "h"),
        node("Add", "h a", "y"),
    ]
    values = {"w": weights(20, 3, 3, 3), "v": weights(20, 20, 3, 3), "g": weights(20, 20, 1, 1)}
    values |= {"one": np.ones(20, F32), "zero": np.zeros(20, F32)}
    network = model(nodes, [tensor("x", [2, 3, 203, 331])], opset=21, **values)
    assert moments(network) == 2
    check_equal(network, 32, 2)


def test_sums_along_rows() -> None:
    """A long signal is summed in segments of the axis that is swept: bands begin inside of them."""
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1]),
        node("Relu", "a", "z"),
        node("GlobalAveragePool", "a", "g"),
        node("Mul", "a g", "y"),
    ]
    network = model(nodes, [tensor("x", [1, 3, 131072])], "y z", w=weights(32, 3, 3))
    assert any(part.partial_reductions for part in plan_of(network).subgraphs)
    check_equal(network, 30001, 2)


def moments(network: onnx.ModelProto) -> int:
    """How many tensors partial moments are taken of."""
    return sum(isinstance(node.op, PartialMoments) for node in plan_of(network).graph.nodes)


@pytest.mark.parametrize("rows", [30001, 32 * 125])
def test_norms_along_rows(rows: int) -> None:
    """Bands begin inside of segments, and where sums end and squares begin."""
    nodes = [node("Conv", "x w", "a", pads=[1, 1]), node("InstanceNormalization", "a one zero", "y")]
    values = {"w": weights(32, 3, 3), "one": np.ones(32, F32), "zero": np.zeros(32, F32)}
    network = model(nodes, [tensor("x", [1, 3, 131072])], **values)
    assert moments(network) == 1
    check_equal(network, rows, 2)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("rows", [1, 50])
def test_norms_of_inputs(dtype: type, rows: int) -> None:
    """Tensors that are not in blocks of channels, and have other types."""
    nodes = [node("InstanceNormalization", "x one zero", "a"), node("LayerNormalization", "a scale", "y", axis=1)]
    shape = (2, 3, 160, 2500)
    values = {"one": np.ones(3, dtype), "zero": np.zeros(3, dtype), "scale": np.ones((3, 1, 1), dtype)}
    network = model(nodes, [tensor("x", shape, dtype)], [tensor("y", None, dtype)], **values)
    assert moments(network) == 2
    check_equal(network, rows, 2)


def test_norms_of_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their moments are of segments of 1024 columns, which no piece of a band cuts."""
    plan_for(monkeypatch, l2=2**20)  # less than the image
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        node("InstanceNormalization", "a one zero", "b"),
        node("Conv", "b v", "c", pads=[1, 1, 1, 1]),
        node("GroupNormalization", "c one zero", "y", num_groups=4),
    ]
    values = {"w": weights(20, 3, 3, 3), "v": weights(20, 20, 3, 3), "one": np.ones(20, F32), "zero": np.zeros(20, F32)}
    half = {name: value.astype(np.float16) for name, value in values.items()}
    network = model(nodes, [tensor("x", [1, 3, 203, 331], np.float16)], [tensor("y", None, np.float16)], 21, **half)
    assert moments(network) == 2
    check_equal(network, 32, 2)


def test_classification(monkeypatch: pytest.MonkeyPatch) -> None:
    """The convolutions are swept, the head runs once on what is left."""
    monkeypatch.setattr(resnet50, "BLOCKS", ((16, 1), *[(32, 1)] * 3))  # of each kind of block
    network = zoo.build("resnet50", size=65)
    stream = planner_of(plan_of(network)).stream_plan(16)
    assert len(stream.sweeps) == 1 and stream.last and len(stream.sweeps[0].schedule.units) > 5
    check_equal(network, 16, 2)


ATTENTION: dict[str, dict[str, Any]] = {
    "bsrn": {"size": (45, 21)},
    "restormer": {"size": (40, 16), "width": 4, "blocks": (1, 1), "refinement": 0},
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_over_all_pixels(name: str) -> None:
    """Among channels, by their products or their deviations over all of space, each of which ends a pass; and in space,
    by a view that is coarser by more than the rows of a band."""
    with slim(name):
        network = zoo.build(name, **ATTENTION[name])
    planner = planner_of(plan_of(network))
    stream = planner.stream_plan(8)
    assert len(stream.sweeps) > 3 and all(len(sweep.schedule.units) > 1 for sweep in stream.sweeps)
    assert planner.whole.nbytes < sum(planner.whole.sizes.values())  # some lie in the place of others
    check_equal(network, 8, 2)


def test_rows_that_are_left_are_flattened() -> None:
    """As before the products of VGG: what the head reads has several rows and columns."""
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "b"),
        node("MaxPool", "b", "c", kernel_shape=[8, 8], strides=[8, 8]),
        node("Flatten", "c", "d"),
        node("Gemm", "d v", "e"),
        node("Relu", "e", "f"),
        node("Gemm", "f u", "y"),
    ]
    values = {"w": weights(16, 3, 3, 3), "v": weights(16 * 4 * 2, 24), "u": weights(24, 10)}
    network = model(nodes, [tensor("x", [2, 3, 35, 21])], **values)
    stream = planner_of(plan_of(network)).stream_plan(16)
    assert len(stream.sweeps) == 1 and stream.last
    check_equal(network, 16, 2)


def test_outputs_that_are_other_tensors() -> None:
    """The input, a tensor between nodes, and another output."""
    nodes = [node("Conv", "x w", "c", pads=[1] * 4), node("Relu", "c", "y"), node("Identity", "y", "z")]
    nodes += [node("Identity", "x", "u"), node("Dropout", "c", "v"), node("Identity", "v", "t")]
    outputs = [tensor(name, (1, 4, 21, 9)) for name in ("y", "z", "v", "t")] + [tensor("u", (1, 3, 21, 9))]
    check_equal(model(nodes, [tensor("x", (1, 3, 21, 9))], outputs, w=weights(4, 3, 3, 3)), 4, 2)


def test_outputs_that_are_known_before_the_run() -> None:
    """Numbers of the model, of any type and shape that has rows."""
    nodes = [node("Conv", "x w", "y", pads=[1] * 4), node("Add", "k k", "u"), node("Identity", "n", "v")]
    known = {"k": np.full((1, 2, 7, 5), 1.5, np.float32), "n": np.arange(6).reshape(3, 2)}
    outputs = [tensor("y", (1, 4, 21, 9)), tensor("u", (1, 2, 7, 5)), tensor("v", (3, 2), np.int64)]
    check_equal(model(nodes, [tensor("x", (1, 3, 21, 9))], outputs, w=weights(4, 3, 3, 3), **known), 4, 2)


def test_inputs_and_outputs_of_several_heights() -> None:
    """x [·, 45] ─ strided ─ a [·, 23] ─ + z ─ y, and Resize to w [·, 67], and what is small besides."""
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Add", "a z", "b"),
        node("Mul", "b small", "y"),
        node("Resize", "b _ _ sizes", "u", mode="linear"),
        node("Relu", "small", "v"),
        node("GlobalMaxPool", "u", "p"),
    ]
    inputs = [tensor("x", [1, 3, 45, 31]), tensor("z", [1, 9, 23, 16]), tensor("small", [1, 9, 1, 1])]
    outputs = [tensor("y", None), tensor("u", None), tensor("v", None), tensor("p", None), tensor("a", None)]
    network = model(nodes, inputs, outputs, w=weights(9, 3, 3, 3), sizes=np.array([1, 9, 67, 20]))
    for rows in (4, 67):
        check_equal(network, rows, 2)


def test_double_precision_and_constants_with_rows() -> None:
    """A position is added to every pixel, and rows are reversed, joined and cut."""
    nodes = [
        node("Add", "x position", "a"),
        node("Slice", "a start end axis back", "b"),
        node("Concat", "a b a", "c", axis=2),
        node("Slice", "c some most axis", "d"),
        node("Pad", "d pads", "e", mode="reflect"),
        node("AveragePool", "e", "y", kernel_shape=[3, 2], strides=[2, 1], ceil_mode=1),
    ]
    ints = {"start": [-1], "end": [-1000], "axis": [2], "back": [-1], "some": [7], "most": [90]}
    ints["pads"] = [0, 0, 3, 1, 0, 0, 2, 1]
    values = {name: np.array(value, np.int64) for name, value in ints.items()}
    values["position"] = np.random.default_rng(3).standard_normal((1, 5, 41, 6))
    network = model(nodes, [tensor("x", [2, 5, 41, 6], np.float64)], [tensor("y", None, np.float64)], **values)
    for rows in (1, 9):
        check_equal(network, rows, 2)


@pytest.mark.parametrize("extents", [(1, 37), (1, 1), (2, 16), (3, 1)])
def test_few_rows(extents: tuple[int, int]) -> None:
    """No more than a band has, or one."""
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        node("ConvTranspose", "a v", "b", strides=[2, 2]),
        node("MaxPool", "b", "y", kernel_shape=[2, 2], strides=[2, 1]),
    ]
    network = model(nodes, [tensor("x", [1, 3, *extents])], w=weights(18, 3, 3, 3), v=weights(18, 5, 2, 2))
    for rows in (1, 8):
        check_equal(network, rows, 1)


def test_no_channels() -> None:
    """Half of what is joined is empty."""
    nodes = [node("Concat", "x none", "a", axis=1), node("Relu", "a", "y"), node("Relu", "none", "z")]
    inputs = [tensor("x", [1, 3, 40, 7]), tensor("none", [1, 0, 40, 7])]
    check_equal(model(nodes, inputs, [tensor("y", None), tensor("z", None)]), 8, 1)


@pytest.mark.parametrize(("name", "sizes"), [("unet", {"levels": 2, "width": 32}), ("nafnet", {"blocks": 2})])
def test_bits_do_not_depend_on_threads(name: str, sizes: dict[str, int]) -> None:
    """Nor, by default, are they far from those of the network run whole."""
    network = zoo.build(name, size=64, **sizes)
    inputs = random_inputs(network)
    stream = planner_of(plan_of(network, exact=False)).stream_plan(16)
    first, *others = (run_stream(stream, inputs, threads)["y"] for threads in (1, 3))
    for other in others:
        np.testing.assert_array_equal(first, other)
    wanted = brickrt.Runtime(network, device="cpu", threads=2).execute(inputs)["y"]
    np.testing.assert_allclose(first, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def paired_pointwise() -> tuple[onnx.ModelProto, str]:
    """A convolution of one pixel, with channels that are no multiple of a block."""
    made = model([node("Conv", "x w", "y")], [tensor("x", [1, 40, 19, 45])], w=WEIGHTS.T.copy()[..., None, None])
    return made, "bkhw,kn->bnhw"


def paired_positions() -> tuple[onnx.ModelProto, str]:
    """A product of an image whose channels are last."""
    return model([node("MatMul", "x w", "y")], [tensor("x", [1, 19, 45, 40])], w=WEIGHTS), "bhwk,kn->bhwn"


@pytest.mark.parametrize("network", [paired_pointwise, paired_positions])
def test_paired_products_do_not_depend_on_the_cut(
    network: Callable[[], tuple[onnx.ModelProto, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(band_plan, "FEW_PIXELS", 20)  # so that images are cut along columns
    made, sums = network()
    plan, inputs = plan_of(made), random_inputs(made)
    (product,) = (k for k, one in enumerate(plan.graph.nodes) if isinstance(one.op, Conv | MatMul))
    plan = replace(plan, algorithms={product: PAIRED}, device=replace(plan.device, l2=2**12))
    planner = planner_of(plan)
    assert planner.plan.algorithms == {product: PAIRED}
    whole = run_stream(planner.stream_plan(100), inputs, 1)["y"]
    wanted = np.einsum(sums, inputs["x"].astype(np.float64), WEIGHTS)
    assert np.abs(whole - wanted).max() < 3e-6 * np.abs(wanted).max()
    bands = run_stream(planner.stream_plan(5, (2,)), inputs, 2)["y"]
    np.testing.assert_array_equal(bands, whole)


@needs_schemes
def test_segments_of_moments_behind_a_product_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_for(monkeypatch, pairs=True, tiles=False, l2=2**20)
    w, ones = RANDOM.standard_normal((32, 5120)).astype(np.float32), np.ones(2, np.float32)
    nodes = [node("MatMul", "x w", "z"), node("InstanceNormalization", "z s b", "y")]
    made = model(nodes, [tensor("x", [1, 2, 400, 32])], w=w, s=ones, b=ones)
    plan, inputs = plan_of(made, exact=False), random_inputs(made)
    (product,) = (one for one in plan.subgraphs if isinstance(plan.graph.nodes[one.nodes[0]].op, MatMul))
    assert plan.algorithms == {product.nodes[0]: PAIRED} and product.partial_reductions
    planner = planner_of(plan)
    z = inputs["x"].astype(np.float64) @ w
    wanted = (z - z.mean((2, 3), keepdims=True)) / np.sqrt(z.var((2, 3), keepdims=True) + 1e-5) + 1
    np.testing.assert_allclose(run_stream(planner.stream_plan(50), inputs, 2)["y"], wanted, 1e-4, 1e-4)


@pytest.mark.parametrize("pooled", [False, True], ids=["one pass", "two passes"])
def test_what_is_made_of_constants_too_large_to_be_folded(pooled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks of windows are, of large images. Other rows of them are others, though nothing is read for them."""
    monkeypatch.setattr(static_values, "FOLDED_GROWTH_BYTES", 0)
    monkeypatch.setattr(row_axes, "SPREAD_BYTES", 0)
    rng = np.random.default_rng(3)
    down, across = rng.random((8, 40, 1)).astype(F32), rng.random((8, 1, 40)).astype(F32)
    nodes = [
        node("Sub", "down across", "made"),
        node("Unsqueeze", "made axes", "mask"),
        *([node("GlobalAveragePool", "x", "mean"), node("Mul", "x mean", "scaled")] if pooled else []),
        node("MatMul", "scaled mask" if pooled else "x mask", "y"),
    ]
    network = model(nodes, [tensor("x", [1, 8, 40, 40])], down=down, across=across, axes=np.zeros(1, np.int64))
    assert any({*one.inputs} <= plan_of(network).graph.constants.keys() for one in plan_of(network).graph.nodes)
    check_equal(network, 4, 2)
