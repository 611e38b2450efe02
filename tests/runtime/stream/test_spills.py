"""Networks whose tensors go through scratch files between passes compute the bits of those that run whole."""

from __future__ import annotations

import random
import time

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import brickrt
from brickrt.graph.errors import BrickError
from brickrt.ops.types import Shape
from brickrt.plan.stream.stream_plan import StreamPlanner
from brickrt.runtime.stream.ring_memory import SweepMemory
from tests.runtime.stream.helpers import pools
from tests.support.cpu.streams import ArraySpill, plan_of, planner_of, random_inputs, run_stream
from tests.support.graphs.onnx_models import model, tensor
from tests.support.random_layers import LAYERS, combine, dense_conv, gate, modulation, norm
from tests.support.random_networks import random_network

F32 = np.float32
HEIGHTS = st.sampled_from([1, 2, 3, 5, 8, 100])
POOLED = [*LAYERS, *[gate, norm, modulation, combine, dense_conv] * 6]  # networks of several passes


def spilling(network: onnx.ModelProto, names: object, exact: bool = True) -> StreamPlanner:
    """The planner that spills these tensors, or so many that a random generator draws."""
    planner = planner_of(plan_of(network, exact=exact))
    if isinstance(names, random.Random):
        names = [name for name in planner.may_spill if names.random() < 0.6]
    return planner.spilling(names)


def check_equal(network: onnx.ModelProto, planner: StreamPlanner, rows: int, strips: tuple[int, ...] = ()) -> None:
    """In bands of `rows` rows, with memory overwritten before each, the bits are those of the network run whole."""
    inputs = random_inputs(network)
    stream = planner.stream_plan(rows, strips)
    found = run_stream(stream, inputs, 2)
    for name, wanted in brickrt.Runtime(network, device="cpu", exact=True, threads=2).execute(inputs).items():
        np.testing.assert_array_equal(found[name], wanted, f"{name} in bands of {rows} rows, {stream.spilled} spilled")


@settings(max_examples=4, deadline=None, derandomize=True)
@given(st.integers(0, 2**20), HEIGHTS, st.sampled_from([(), (1,), (2,), (2, 2)]))
def test_any_tensors_of_images_and_volumes(seed: int, rows: int, strips: tuple[int, ...]) -> None:
    draw = random.Random(seed)
    network = random_network(draw, 14, layers=POOLED)
    try:
        planner = spilling(network, draw)
    except BrickError:  # not run band by band
        assume(False)
        raise
    assume(planner.network.spilled)
    check_equal(network, planner, rows, strips if planner.may_cut else ())


@settings(max_examples=2, deadline=None, derandomize=True)
@given(st.integers(0, 2**20), st.integers(40, 150), st.sampled_from([1, 7, 16, 64]))
def test_many_rows(seed: int, extent: int, rows: int) -> None:
    """So many that bands are alike, and rings move."""
    draw = random.Random(seed)
    network = random_network(draw, 14, (extent, 7), POOLED)
    try:
        planner = spilling(network, draw)
    except BrickError:
        assume(False)
        raise
    assume(planner.network.spilled)
    check_equal(network, planner, rows)


@pytest.mark.parametrize("rows", [1, 4, 7])
def test_what_is_still_written_stays_while_rings_move(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write looks at its rows late: by then the next band runs, in rings whose rows may have moved."""
    write, leaves_alone, alone = ArraySpill.write, SweepMemory.leaves_alone, []

    def late(spill: ArraySpill, lo: Shape, array: np.ndarray) -> None:
        time.sleep(0.004)
        write(spill, lo, array)

    def noted(memory: SweepMemory, name: str, band: int) -> bool:
        alone.append(leaves_alone(memory, name, band))
        return alone[-1]

    monkeypatch.setattr(ArraySpill, "write", late)
    monkeypatch.setattr(SweepMemory, "leaves_alone", noted)
    network = onnx.load_from_string(pools())
    planner = planner_of(plan_of(network))
    check_equal(network, planner.spilling(planner.may_spill), rows)
    assert any(alone)


@pytest.mark.parametrize("rows", [7, 100])
def test_sums_of_parts_of_rows_are_there_in_later_passes(rows: int) -> None:
    """A norm over all of an image whose channels are last: sums of parts of each row are made with the rows, and the
    next pass needs them again."""
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        onnx.helper.make_node("Transpose", ["a"], ["t"], perm=[0, 2, 3, 1]),
        onnx.helper.make_node("Mul", ["t", "s"], ["c"]),
        onnx.helper.make_node("Reshape", ["c", "line"], ["d"]),
        onnx.helper.make_node("InstanceNormalization", ["d", "ones", "zeros"], ["e"]),
        onnx.helper.make_node("Reshape", ["e", "image"], ["y"]),
    ]
    rng, shapes = np.random.default_rng(4), {"line": np.array([1, 1, -1]), "image": np.array([1, 45, 64, 300])}
    values = {"w": rng.standard_normal((300, 3, 3, 3)), "s": rng.standard_normal(300), "ones": [1.0], "zeros": [0.0]}
    floats = {name: np.asarray(value, F32) for name, value in values.items()}
    network = model(nodes, [tensor("x", [1, 3, 45, 64])], opset=17, **floats, **shapes)
    planner = planner_of(plan_of(network))
    assert any(unit.partial_reductions for unit in planner.network.units)
    check_equal(network, planner.spilling(planner.may_spill), rows)
