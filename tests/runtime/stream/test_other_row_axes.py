"""Inputs and outputs whose rows do not lie along the third axis: channels last, labels without channels, tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import brickrt
from brickrt import load
from brickrt.graph.errors import BrickError
from brickrt.plan.options import PlanOptions
from brickrt.runtime.cluster.cluster_job import with_usual_rows
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.program_protocol import Cancelled
from brickrt.runtime.stream.stream_files import opened_job
from brickrt.runtime.stream.stream_report import StreamCut, StreamOptions
from tests.support.cpu.streams import plan_of, planner_of, random_inputs, run_stream
from tests.support.graphs.onnx_models import model, node, tensor

EXTENTS = 45, 37
TO_FIRST, TO_LAST = [0, 3, 1, 2], [0, 2, 3, 1]
ENDS = {  # by name: the nodes from `b` [1, 6, 45, 37] to `y`, and the axis of its rows
    "labels": ([node("ArgMax", "b", "y", axis=1, keepdims=0)], 1),
    "rows of a codebook": ([node("ArgMax", "b", "k", axis=1, keepdims=0), node("Gather", "codes k", "y")], 1),
    "first channel": ([node("Gather", "b zero", "y", axis=1)], 1),
    "mean of channels": ([node("ReduceMean", "b", "y", axes=[1], keepdims=0)], 1),
    "channels last": ([node("Transpose", "b", "y", perm=TO_LAST)], 1),
    "tokens": ([node("Reshape", "b flat", "f"), node("Transpose", "f", "y", perm=[0, 2, 1])], 1),
    "of no batch": ([node("Squeeze", "b axis", "y")], 1),
    "rows as a batch": (
        [
            node("Transpose", "b", "s", perm=[0, 2, 1, 3]),
            node("Reshape", "s lines", "f"),
            node("Conv", "f u", "l", pads=[1, 1]),
            node("Reshape", "l turned", "m"),
            node("Transpose", "m", "y", perm=[0, 2, 1, 3]),
        ],
        2,
    ),
    "a matrix turned": ([node("ReduceMean", "b", "m", axes=[0, 1], keepdims=0), node("Transpose", "m", "y")], 1),
    "columns averaged": ([node("ReduceMean", "b", "y", axes=[3], keepdims=0)], 2),
    "added to one of lower rank": ([node("Gather", "b zero", "g", axis=1), node("Add", "b g", "y")], 2),
}


def network(end: str, channels_last: bool = False) -> onnx.ModelProto:
    """x ─ (transposed) ─ conv ─ relu ─ conv ─ b … y"""
    nodes, _ = ENDS[end]
    first = [node("Mul", "x half", "h"), node("Transpose", "h", "t", perm=TO_FIRST)] if channels_last else []
    body = [
        node("Conv", f"{'t' if channels_last else 'x'} w", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "r"),
        node("Conv", "r v", "b", pads=[1, 1, 1, 1]),
    ]
    rng = np.random.default_rng(0)
    values = {"w": rng.standard_normal((8, 3, 3, 3)), "v": rng.standard_normal((6, 8, 3, 3)), "half": np.array(0.5)}
    values |= {"codes": rng.standard_normal((6, 5)), "u": rng.standard_normal((6, 6, 3))}
    whole = {"flat": np.array([1, 6, -1]), "zero": np.array(0), "axis": np.array([0])}
    whole |= {"lines": np.array([EXTENTS[0], 6, EXTENTS[1]]), "turned": np.array([1, EXTENTS[0], 6, EXTENTS[1]])}
    shape = (1, *EXTENTS, 3) if channels_last else (1, 3, *EXTENTS)
    floats = {name: value.astype(np.float32) for name, value in values.items()}
    return model([*first, *body, *nodes], [tensor("x", shape)], **floats, **whole)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("end", ENDS)
def test_bits_are_those_of_the_network_run_whole(end: str, channels_last: bool) -> None:
    given = network(end, channels_last)
    planner, inputs = planner_of(plan_of(given)), random_inputs(given)
    swept = planner.network.swept
    assert not swept.collected and swept.axes.axes["y"] == ENDS[end][1]
    assert swept.axes.axes["x"] == (1 if channels_last else 2)
    wanted = brickrt.Runtime(given, device="cpu", exact=True, threads=2).execute(inputs)["y"]
    for rows, strips in ((7, (1,)), (16, (2,))):
        found = run_stream(planner.stream_plan(rows, strips), inputs, 2)["y"]
        np.testing.assert_array_equal(found, wanted, f"{rows} rows")


@pytest.mark.parametrize("name", ["y.npy", "y.zarr"])
@pytest.mark.parametrize("end", ["labels", "channels last"])
def test_files_have_the_rows_of_bands_and_a_run_goes_on(end: str, name: str, tmp_path: Path) -> None:
    given = network(end, channels_last=True).SerializeToString()
    x = np.random.default_rng(1).standard_normal((1, *EXTENTS, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    outputs, told = {"y": tmp_path / name}, []
    pipeline = Pipeline(choose_engine("cpu"), PlanOptions(exact=True), 2)

    def job(resume: bool, watch=None):
        asked = StreamOptions(2**40, resume=resume, cut=None if resume else StreamCut(8, (1,)))
        return opened_job(pipeline, load(given), tmp_path / "x.npy", outputs, asked, watch=watch)

    def watch(progress) -> None:
        told.append(progress)
        if progress.bands > 3:  # before, all bands that the next result needs are run again
            begun.cancel()

    with job(False, watch=watch) as begun, pytest.raises(Cancelled):
        begun.run(outputs)
    with job(True) as going_on:
        report = going_on.run(outputs)
    assert told[0].all_rows == EXTENTS[0] and 0 < report.bands < report.all_bands
    wanted = brickrt.Runtime(given, device="cpu", exact=True, threads=2).execute({"x": x})["y"]
    found = np.load(tmp_path / name) if name.endswith("npy") else _zarr(tmp_path / name)
    np.testing.assert_array_equal(found, wanted)


def _zarr(path: Path) -> np.ndarray:
    import zarr

    return np.asarray(zarr.open_array(str(path), mode="r"))


def test_a_cluster_cuts_the_third_axis_only() -> None:
    stream = planner_of(plan_of(network("labels"))).stream_plan(8)
    with pytest.raises(BrickError, match=r"'y' .* has its rows along axis 1: workers of a cluster cut along axis 2"):
        with_usual_rows(stream)


def warping(shape: tuple[int, ...], fixed: bool) -> onnx.ModelProto:
    """Where the points are fixed, there is no field.

    x ─ conv ─ features ─ conv ─ field ─┬─ points of the features ─ conv ─ y
    └───────────────────────────────────────┴─ points of x ─ z"""
    axes = len(shape) - 2
    rng = np.random.default_rng(2)
    pads, perm = [1] * 2 * axes, [0, *range(2, axes + 2), 1]
    field = [
        node("Conv", "features w", "moves", pads=pads),
        node("Add", "moves rest", "field"),
        node("Transpose", "field", "grid", perm=perm),
    ]
    nodes = [
        node("Conv", "x v", "features", pads=pads),
        *([] if fixed else field),
        node("GridSample", "features grid", "moved", padding_mode="border", align_corners=1),
        node("Conv", "moved u", "y", pads=pads),
        node("GridSample", "x grid", "z", align_corners=1),
    ]
    taps = (3,) * axes
    weights = {"v": (9, shape[1], *taps), "w": (axes, 9, *taps), "u": (3, 9, *taps)}
    values = {name: 0.2 * rng.standard_normal(size) for name, size in weights.items()}
    lines = np.meshgrid(*(np.linspace(-1, 1, extent) for extent in shape[2:]), indexing="ij")
    rest = np.stack(lines[::-1])[None]
    values |= {"grid": np.transpose(rest + 0.3 * np.sin(9 * rest), perm)} if fixed else {"rest": rest}
    opset = 16 if axes == 2 else 20
    floats = {name: value.astype(np.float32) for name, value in values.items()}
    return model(nodes, [tensor("x", shape)], "y z", opset=opset, **floats)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("shape", [(1, 3, 45, 37), (1, 1, 40, 9, 11)], ids=["image", "volume"])
def test_images_at_points(shape: tuple[int, ...], fixed: bool) -> None:
    """What is read at points is needed whole, and their rows are bands."""
    given = warping(shape, fixed)
    planner, inputs = planner_of(plan_of(given)), random_inputs(given)
    swept = planner.network.swept
    assert set(swept.collected) == {"features", "x"} and swept.passes == 2
    assert not swept.resident and (fixed or swept.axes.axes["grid"] == 1)
    wanted = brickrt.Runtime(given, device="cpu", exact=True, threads=2).execute(inputs)
    for rows, strips in ((7, (1,)), (16, (2,))):
        found = run_stream(planner.stream_plan(rows, strips), inputs, 2)
        for name in "yz":
            np.testing.assert_array_equal(found[name], wanted[name], f"{name} in {rows} rows")


def video(frames: int, deformed: bool) -> onnx.ModelProto:
    """x [1, frames, 3, rows, columns] ─┬─ frames as a batch ─ conv ─ frames again ─ y
    └── a frame ─ conv, at points that another convolution gives ─ z"""
    rng = np.random.default_rng(3)
    pads = [1] * 4
    ends = [node("DeformConv", "frame g offsets", "z", pads=pads)] if deformed else [node("Conv", "frame g", "z")]
    nodes = [
        node("Reshape", "x batch", "flat"),
        node("Conv", "flat v", "a", pads=pads),
        node("Reshape", "a again", "y"),
        node("Gather", "x last", "frame", axis=1),
        node("Conv", "frame w", "offsets", pads=pads),
        *ends,
    ]
    values = {name: 0.3 * rng.standard_normal((n, 3, 3, 3)) for name, n in (("v", 8), ("w", 18), ("g", 4))}
    floats = {name: value.astype(np.float32) for name, value in values.items()}
    shapes = {"batch": np.array([frames, 3, 45, 37]), "again": np.array([1, frames, 8, 45, 37]), "last": np.array(1)}
    outputs = "y z" if deformed else "y offsets z"
    return model(nodes, [tensor("x", [1, frames, 3, 45, 37])], outputs, opset=19, **floats, **shapes)


@pytest.mark.parametrize("deformed", [False, True])
def test_rows_of_a_video_lie_behind_its_frames_and_channels(deformed: bool) -> None:
    given = video(4, deformed)
    planner, inputs = planner_of(plan_of(given)), random_inputs(given)
    swept = planner.network.swept
    assert swept.axes.axes["x"] == 3 and swept.axes.axes["y"] == 3 and swept.axes.axes["z"] == 2
    assert len(swept.collected) == deformed
    wanted = brickrt.Runtime(given, device="cpu", exact=True, threads=2).execute(inputs)
    for rows, strips in ((7, (1,) * swept.passes), (16, (2,) * swept.passes)):
        found = run_stream(planner.stream_plan(rows, strips), inputs, 2)
        for name in wanted:
            np.testing.assert_array_equal(found[name], wanted[name], f"{name} in {rows} rows")
