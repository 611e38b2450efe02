"""Images and volumes of 2^31 and 2^40 elements, by planning alone: as many bands are looked at as of small ones, every
box lies in its tensor, and memory does not grow with the rows."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from brickrt.graph.errors import BrickError
from brickrt.plan.stream.band_storage import persistent_offsets
from brickrt.plan.stream.choose_bands import Candidate, MemoryLimit, TooLittleMemory, choose_bands
from brickrt.plan.stream.stream_plan import StreamPlanner
from brickrt.runtime.lowering.inplace_slices import find_inplace_slices
from tests.support.cpu.streams import plan_of, planner_of
from tests.support.graphs.onnx_models import model, node, tensor

MIB = 2**20
CHANNELS = 4
PLENTY = 2**60
IMAGES = ((2**15, 2**14), (2**20, 2**18))  # rows and columns: 2^31 and 2^40 elements of four channels
VOLUMES = ((2**11, 2**10, 2**8), (2**14, 2**12, 2**12))
NAMES = ("strided", "dilated", "padded", "joined", "resized", "normed", "pooled", "linear attention", "of channels")
# of each kind of layer an image and a volume of 2^40, and in turns an image or a volume of 2^31
CASES = [(name, extents[1]) for name in NAMES for extents in (IMAGES, VOLUMES)]
CASES += [(name, (IMAGES, VOLUMES)[k % 2][0]) for k, name in enumerate(NAMES)]


def weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {name: np.ones(shape, np.float32) for name, shape in shapes.items()}


def network(name: str, *extents: int) -> onnx.ModelProto:
    """x [1, 4, *extents] → y, with one kind of layer each."""
    c, d = CHANNELS, len(extents)
    kernel, ones = (3,) * d, [1] * (2 * d)
    x, half = tensor("x", [1, c, *extents]), {"strides": [2] * d, "pads": ones}
    given = weights(w=(c, c, *kernel), u=(c, c, *(2,) * d))
    conv = node("Conv", "x w", "a", pads=ones)
    match name:
        case "strided":
            nodes = [node("Conv", "x w", "b", **half), node("ConvTranspose", "b u", "y", strides=[2] * d)]
        case "dilated":
            nodes = [conv, node("Conv", "a w", "y", dilations=[16] * d, pads=[16] * (2 * d))]
        case "padded":
            nodes = [node("Pad", "x p", "b", mode="reflect"), node("Conv", "b w", "y")]
            given["p"] = np.array([0, 0, *ones[:d], 0, 0, *ones[d:]])
        case "joined":
            nodes = [conv, node("Concat", "x a", "b", axis=1), node("Conv", "b v", "y")]
            given |= weights(v=(c, 2 * c, *(1,) * d))
        case "resized":
            nodes = [node("Conv", "x w", "b", **half), node("Resize", "b _ s", "y", mode="linear")]
            given["s"] = np.array([1, 1, *[2] * d], np.float32)
        case "normed":
            nodes = [conv, node("InstanceNormalization", "a g g", "b"), node("Conv", "b w", "y", pads=ones)]
            given |= weights(g=(c,))
        case "pooled":
            nodes = [conv, node("GlobalAveragePool", "a", "m"), node("Mul", "a m", "y")]
        case "linear attention":
            nodes = [
                node("Reshape", "x flat", "q"),
                node("Transpose", "q", "k", perm=[0, 2, 1]),
                node("MatMul", "q k", "s"),
                node("MatMul", "s q", "r"),
                node("Reshape", "r image", "y"),
            ]
            given |= {"flat": np.array([1, c, -1]), "image": np.array([1, c, *extents])}
        case _:
            nodes = [conv, node("Softmax", "a", "y", axis=1)]
    return model(nodes, [x], **given)


def planned(name: str, *extents: int) -> StreamPlanner:
    return planner_of(plan_of(network(name, *extents)))


def chosen(planner: StreamPlanner, limit: int) -> Candidate:
    return choose_bands(planner, find_inplace_slices(planner.plan), MemoryLimit(limit, 2, 180 * MIB), whole=False)


def least(planner: StreamPlanner) -> int:
    with pytest.raises(TooLittleMemory) as refused:
        chosen(planner, MIB)
    return refused.value.least.memory.total


@pytest.mark.parametrize(("name", "extents"), CASES, ids=str)
def test_the_least_that_a_refusal_names_is_enough(name: str, extents: tuple[int, ...]) -> None:
    """And the boxes of bands lie in their tensors, of which there are few."""
    planner = planned(name, *extents)
    enough = least(planner)
    assert 180 * MIB < chosen(planner, enough).memory.total <= enough
    for one in chosen(planner, PLENTY).plan.sweeps:
        offsets, end = persistent_offsets(one.storage)
        assert min(offsets.values()) >= 0 and max(offsets.values()) < end
    check_boxes(planner, extents)


def check_boxes(planner: StreamPlanner, extents: tuple[int, ...]) -> None:
    """Few bands are looked at, and what they read and write lies in its tensor."""
    graph, rows = planner.plan.graph, 2 * min(64, extents[0] // 64)
    for sweep in planner.stream_plan(rows, sample=True).sweeps:
        schedule = sweep.schedule
        assert schedule.bands < 350 and sweep.all_bands >= extents[0] // rows
        for read in schedule.reads:
            node = graph.nodes[read.k]
            for boxes, tensor_name in ((read.boxes, node.output), (read.region, node.inputs[read.i])):
                assert (boxes.lo >= 0).all() and (boxes.hi <= np.asarray(graph.types[tensor_name].shape)).all()
        for tensor_name, one in schedule.rows.items():
            assert (one.keep <= one.lo).all() and (one.lo <= one.hi).all()
            of_a_row = -(-graph.types[tensor_name].shape[schedule.axes.of(tensor_name)] // extents[0])
            assert one.window < 4096 * of_a_row or tensor_name in planner.whole_bytes


@pytest.mark.parametrize("name", NAMES)
def test_memory_of_a_taller_image_is_that_of_a_low_one(name: str) -> None:
    """But for sums of its rows, which a pass collects."""
    low, tall = (planned(name, rows, 2**18) for rows in (2**13, 2**20))
    cut = [one.stream_plan(64, (4,), sample=True) for one in (low, tall)]
    for a, b in zip(*(one.sweeps for one in cut), strict=True):
        held = [
            {name: size for name, size in one.storage.persistent.items() if name not in of.whole_bytes}
            for one, of in ((a, low), (b, tall))
        ]
        assert sorted(held[0].values()) == sorted(held[1].values())
        assert a.schedule.ahead == b.schedule.ahead
    whole = sum(tall.whole_bytes.values())
    assert whole <= CHANNELS * 4 * 2**20 * 2**18 // 2**13


@pytest.mark.parametrize("rows", [2**13, 2**20, 2**24])
def test_the_last_band_of_a_whole_schedule_ends_with_the_image(rows: int) -> None:
    (sweep,) = planned("strided", rows, 64).stream_plan(max(64, rows // 2**10)).sweeps
    for target in sweep.schedule.targets:
        assert sweep.schedule.box(target, sweep.schedule.bands - 1).hi[0, 2] == rows
    assert (np.diff(sweep.schedule.rows["y"].hi) >= 0).all()


def test_what_has_more_bytes_than_64_bits_count_is_refused() -> None:
    with pytest.raises(BrickError, match=r"larger than memory can be"):
        planned("strided", 2**31, 2**29)
