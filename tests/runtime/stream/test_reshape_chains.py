"""Reshapes and transposes that keep rows together are swept, with the bits of an in-core run."""

from collections.abc import Sequence
from importlib.resources import files

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from brickrt import Runtime, load
from brickrt.graph.errors import BrickError
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.types import TensorType
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import Plan
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.pipeline import Pipeline
from tests.support.cpu.streams import planner_of, run_stream

SHAPE = 1, 3, 45, 37
Cuts = Sequence[tuple[int, tuple[int, ...]]]
CUTS: Cuts = (7, (1,)), (33, (2,))  # rows of a band and strips


def weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) * 0.2).astype(np.float32)


def model(middle: list[onnx.NodeProto], constants: dict[str, np.ndarray], channels: int) -> onnx.ModelProto:
    """A convolution to 12 channels `a`, then the nodes, which give `b` of so many channels, then another to `y`."""
    rng = np.random.default_rng(1)
    all_constants = {"w1": weights(rng, 12, 3, 3, 3), "w2": weights(rng, 5, channels, 3, 3)} | constants
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1] * 4),
        *middle,
        helper.make_node("Conv", ["b", "w2"], ["y"], pads=[1] * 4),
    ]
    ends = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", SHAPE), ("y", None))]
    kept = [numpy_helper.from_array(value, name) for name, value in all_constants.items()]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def shuffled(factor: int, to_depth: bool) -> onnx.ModelProto:
    op, settings = ("SpaceToDepth", {}) if to_depth else ("DepthToSpace", {"mode": "CRD"})
    padded = helper.make_node("Pad", ["a", "pads"], ["p"])  # to extents that the factor divides
    node = helper.make_node(op, ["p"], ["b"], blocksize=factor, **settings)
    pads = np.array([0, 0, 0, 0, 0, 0, 1, 1], np.int64)
    return model([padded, node], {"pads": pads}, 12 * factor**2 if to_depth else 12 // factor**2)


def channel_shuffle() -> onnx.ModelProto:
    shapes = {"split": np.array([1, 3, 4, 45, 37]), "joined": np.array([1, 12, 45, 37])}
    nodes = [
        helper.make_node("Reshape", ["a", "split"], ["s"]),
        helper.make_node("Transpose", ["s"], ["t"], perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["t", "joined"], ["b"]),
    ]
    return model(nodes, shapes, 12)


def norm_of_pixels() -> onnx.ModelProto:
    rng = np.random.default_rng(2)
    nodes = [
        helper.make_node("Transpose", ["a"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("LayerNormalization", ["t", "scale", "shift"], ["n"], axis=-1),
        helper.make_node("Transpose", ["n"], ["b"], perm=[0, 3, 1, 2]),
    ]
    return model(nodes, {name: rng.random(12).astype(np.float32) for name in ("scale", "shift")}, 12)


def planned(given: onnx.ModelProto, shape: tuple[int, ...]) -> Plan:
    source = load(given)
    pipeline = Pipeline(choose_engine("cpu"), PlanOptions(exact=True), 2)
    types = dict.fromkeys(source.inputs, TensorType(shape, np.float32))
    return pipeline.plan(pipeline.specialize(first_stage(source, frozenset(types)), types, {}).graph)


def check(given: onnx.ModelProto, shape: tuple[int, ...], cuts: Cuts = CUTS) -> None:
    plan = planned(given, shape)
    x = np.random.default_rng(0).random(shape, dtype=np.float32)
    feeds = dict.fromkeys(plan.graph.inputs, x)
    expected = Runtime(given, device="cpu", exact=True, threads=2).execute(feeds)
    planner = planner_of(plan)
    for rows, strips in cuts:
        got = run_stream(planner.stream_plan(rows, strips), feeds, 2)
        assert all(np.array_equal(got[name], expected[name]) for name in expected), (rows, strips)


@pytest.mark.parametrize("to_depth", [False, True])
def test_pixels_are_shuffled(to_depth: bool):
    check(shuffled(2, to_depth), SHAPE)


def test_channels_are_shuffled():
    check(channel_shuffle(), SHAPE)


def test_channels_of_a_pixel_are_normed_between_transposes():
    check(norm_of_pixels(), SHAPE)


def test_the_demo_s_denoiser():
    with files("brickrt.demo").joinpath("denoiser.onnx").open("rb") as file:
        check(onnx.load(file), (1, 3, 64, 48), [(33, ())])


def test_bands_of_shuffled_pixels_are_alike():
    plan = planned(shuffled(2, to_depth=False), SHAPE)
    (sweep,) = planner_of(plan).stream_plan(4).sweeps
    assert len(np.unique(sweep.like)) < sweep.schedule.bands / 2


def test_images_that_are_turned_are_swept_along_their_columns_from_there_on():
    turned = helper.make_node("Transpose", ["a"], ["b"], name="turned", perm=[0, 1, 3, 2])
    given = model([turned], {}, 12)
    assert planner_of(planned(given, SHAPE)).network.swept.axes.axes["y"] == 3
    check(given, SHAPE, ((7, ()), (33, ())))


def test_layers_that_need_all_of_large_images_are_refused_by_name():
    """What is turned is added to what is not."""
    turned = helper.make_node("Transpose", ["a"], ["t"], name="turned", perm=[0, 1, 3, 2])
    given = model([turned, helper.make_node("Add", ["t", "a"], ["b"], name="both")], {}, 12)
    for axis in (2, 3):
        given.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = 4096
    plan = planned(given, (1, 3, 4096, 4096))
    with pytest.raises(BrickError, match=r"node '(turned|both)' .* needs all of"):
        planner_of(plan)
