"""Images that are rolled, or padded by their opposite edge: few rows are kept for long, not all of the image."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import brickrt
from tests.support.cpu.streams import plan_of, planner_of, random_inputs, run_stream
from tests.support.graphs.onnx_models import model, node, tensor


def joined(x: str, y: str, shift: int, extent: int, axis: int) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """What exporters make of a roll by -shift: x[shift:] and then x[:shift]."""
    at = {f"{y}s": [shift % extent], f"{y}e": [2**40], f"{y}z": [0], f"{y}a": [axis]}
    nodes = [
        node("Slice", f"{x} {y}s {y}e {y}a", f"{y}l"),
        node("Slice", f"{x} {y}z {y}s {y}a", f"{y}f"),
        node("Concat", f"{y}l {y}f", y, axis=axis),
    ]
    return nodes, {name: np.array(value, np.int64) for name, value in at.items()}


def rolled(extents: tuple[int, int], shift: int, times: int) -> onnx.ModelProto:
    """x ─ conv ─ (rolled up and left ─ conv ─ rolled back ─ + ) … ─ conv ─ y"""
    rng = np.random.default_rng(0)
    nodes = [node("Conv", "x w0", "b0", pads=[1, 1, 1, 1])]
    values = {"w0": rng.standard_normal((4, 3, 3, 3)).astype(np.float32)}
    for k in range(times):
        source = f"b{k}"
        for at, (axis, way) in enumerate([(2, 1), (3, 1), (2, -1), (3, -1)]):
            if at == 2:
                nodes.append(node("Conv", f"{source} w{k + 1}", f"c{k}", pads=[1, 1, 1, 1]))
                values[f"w{k + 1}"] = (rng.standard_normal((4, 4, 3, 3)) / 6).astype(np.float32)
                source = f"c{k}"
            more, ends = joined(source, f"r{k}_{at}", way * shift, extents[axis - 2], axis)
            nodes, values, source = [*nodes, *more], values | ends, f"r{k}_{at}"
        nodes.append(node("Add", f"{source} b{k}", f"b{k + 1}"))
    nodes.append(node("Conv", f"b{times} last", "y", pads=[1, 1, 1, 1]))
    values["last"] = rng.standard_normal((2, 4, 3, 3)).astype(np.float32)
    return model(nodes, [tensor("x", (1, 3, *extents))], **values)


def check(network: onnx.ModelProto, rows: int, strips: int, threads: int, saved: float) -> None:
    inputs = random_inputs(network)
    wanted = brickrt.Runtime(network, device="cpu", exact=True, threads=threads).execute(inputs)["y"]
    planner = planner_of(plan_of(network, threads=threads))
    found = run_stream(planner.stream_plan(rows, (strips,), saved=saved), inputs, threads)["y"]
    np.testing.assert_array_equal(found, wanted)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    extents=st.tuples(st.integers(33, 60), st.integers(9, 40)),
    shift=st.integers(1, 8),
    times=st.integers(1, 2),
    rows=st.sampled_from([1, 4, 7, 16]),
    strips=st.integers(1, 2),
    threads=st.integers(1, 2),
    saved=st.sampled_from([0.0, 2.0]),
)
def test_bits_are_those_of_the_network_run_whole(extents, shift, times, rows, strips, threads, saved) -> None:
    check(rolled(extents, shift, times), rows, strips, threads, saved)


def test_each_roll_there_and_back_takes_one_pass_more_and_keeps_few_rows() -> None:
    planner = planner_of(plan_of(rolled((400, 24), 4, 2)))
    assert planner.network.swept.passes == 3
    parts = [name for name in planner.network.swept.collected if ":" not in name]
    assert len(parts) == 2 and all(planner.plan.graph.types[name].shape[2] == 4 for name in parts)
    for one in planner.stream_plan(8).sweeps:
        assert max(rows.window for rows in one.schedule.rows.values()) < 100


@pytest.mark.parametrize("rows", [3, 16])
def test_bands_in_the_middle_are_alike(rows: int) -> None:
    stream = planner_of(plan_of(rolled((400, 24), 4, 1))).stream_plan(rows)
    for one in stream.sweeps:
        assert len(np.unique(one.like)) < 16


@pytest.mark.parametrize(("rows", "strips", "saved"), [(5, 1, 0.0), (16, 2, 2.0)])
def test_edges_padded_by_the_opposite_ones(rows: int, strips: int, saved: float) -> None:
    """As a circular padding is exported."""
    part = {"z": [0], "three": [3], "end": [-2], "far": [2**40], "two": [2]}
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        node("Slice", "a end far two", "above"),
        node("Slice", "a z three two", "below"),
        node("Concat", "above a below", "p", axis=2),
        node("Conv", "p v", "y", pads=[0, 1, 0, 1]),
    ]
    rng = np.random.default_rng(0)
    values = {"w": rng.standard_normal((4, 3, 3, 3)), "v": rng.standard_normal((4, 4, 3, 3))}
    ints = {name: np.array(value, np.int64) for name, value in part.items()}
    floats = {name: value.astype(np.float32) for name, value in values.items()}
    network = model(nodes, [tensor("x", (1, 3, 70, 23))], **floats, **ints)
    assert planner_of(plan_of(network)).network.swept.passes == 2
    check(network, rows, strips, 2, saved)
