"""Operators that move elements or reshape, over the opsets in which their operands were attributes and inputs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from brickrt.graph.errors import Unsupported
from brickrt.ops.operators.move import Take
from tests.support.cpu.streams import plan_of
from tests.support.graphs.builders_harness import check, one_node, run_model
from tests.support.graphs.onnx_models import model, node, tensor

RNG = np.random.default_rng(2)
MOST, LEAST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def data(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return (RNG.standard_normal(shape) * 10).astype(dtype)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


SLICES = [
    ([1, 0], [3, 4], None, None),
    ([-3], [-1], [1], None),
    ([0], [MOST], [2], None),
    ([2, -2], [MOST, -1], [0, -1], None),
    ([5], [2], [1], None),
    ([-1], [LEAST], [1], [-1]),
    ([4, 0], [0, MOST], [1, 2], [-2, 3]),
    ([10, -10], [-10, 10], [0, 2], [-1, 1]),
]


@pytest.mark.parametrize("case", SLICES)
@pytest.mark.parametrize("version", [10, 11, 13])
def test_slice(case: tuple, version: int) -> None:
    inputs = [None if part is None else ints(*part) for part in case]
    check("Slice", version, [data(4, 5, 6), *inputs])


def test_a_slice_backwards_from_before_the_first_position():
    """ONNX moves its start into the tensor, which its reference does not do."""
    x = data(4, 5)
    model, feeds = one_node("Slice", 13, [x, ints(-9, -7), ints(LEAST, LEAST), None, ints(-1, -2)])
    (found,) = run_model(model, feeds, constants=[name for name in feeds if name != "in0"])
    np.testing.assert_array_equal(found, x[:1, :1])


@pytest.mark.parametrize("case", SLICES[:5])
def test_slice_by_attributes(case: tuple) -> None:
    starts, ends, axes, _ = case
    check("Slice", 7, [data(4, 5, 6)], starts=starts, ends=ends, **({"axes": axes} if axes else {}))


PADS = {
    "all": [1, 0, 2, 0, 3, 1],
    "negative": [-1, 2, 0, 0, -2, 1],
    "nothing": [0, 0, 0, 0, 0, 0],
}


@pytest.mark.parametrize("name", PADS)
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pad(name: str, mode: str) -> None:
    x = data(4, 5, 6)
    check("Pad", 7, [x], pads=PADS[name], mode=mode, **({"value": 2.5} if mode == "constant" else {}))
    for version in (11, 13, 18, 19, 21):
        fill = [np.array(1.5, np.float32)] if mode == "constant" else []
        check("Pad", version, [x, ints(*PADS[name]), *fill], mode=mode)


def test_pad_some_axes_and_types() -> None:
    x = data(4, 5, 6, dtype=np.int64)
    check("Pad", 18, [x, ints(1, 2, 0, 3), np.array(7, np.int64), ints(-1, 0)])
    check("Pad", 13, [x > 0, ints(1, 2, 0, 3, 0, 0)])


@pytest.mark.parametrize("pads", [[2, 0, 1, 3], [0, 7, 0, 9], [-1, 1, 0, 0]])
def test_pad_wraps(pads: list[int]) -> None:
    check("Pad", 19, [data(4, 5), ints(*pads)], mode="wrap")


def test_pad_reflects_more_than_once() -> None:
    x = data(3, 4)
    (y,) = run_model(*one_node("Pad", 18, [x, ints(5, 7, 0, 9)], mode="reflect"))
    np.testing.assert_array_equal(y, np.pad(x, [(5, 0), (7, 9)], mode="reflect"))


def test_center_crop_pad() -> None:
    check("CenterCropPad", 18, [data(7, 4, 9), ints(4, 9)], oracle="reference", axes=[0, 1])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(axis: int) -> None:
    shapes = [[2, 3, 4], [2, 3, 4], [2, 3, 4]]
    shapes[1][axis], shapes[2][axis] = 5, 0
    check("Concat", 13, [data(*s) for s in shapes], axis=axis)
    check("Concat", 13, [data(2, 3, 4)], axis=axis)
    check("Concat", 13, [data(2, 3, 4) for _ in range(70)], axis=axis)


def test_split() -> None:
    x = data(3, 7, 6)
    for version in (7, 11):
        check("Split", version, [x], outputs=3, axis=1, split=[2, 0, 5])
        check("Split", version, [x], outputs=2, axis=2)
    for version in (13, 18):
        check("Split", version, [x, ints(1, 4, 2)], outputs=3, axis=-2)
    check("Split", 13, [x], outputs=3, axis=2)
    check("Split", 18, [x], outputs=3, axis=1, num_outputs=3)
    check("Split", 18, [x], outputs=2, axis=2, num_outputs=2)


def test_squeeze_and_unsqueeze() -> None:
    x = data(1, 3, 1, 4)
    for version in (7, 11):
        check("Squeeze", version, [x], axes=[0, 2])
        check("Unsqueeze", version, [x], axes=[0, 3])
    check("Squeeze", 11, [x], axes=[-2])
    check("Unsqueeze", 11, [x], axes=[-1, 0])
    for version in (13, 21, 23):
        check("Squeeze", version, [x, ints(-4, 2)])
        check("Squeeze", version, [x])
        check("Unsqueeze", version, [x, ints(4, 0, -2)])


def test_squeeze_refuses_other_extents() -> None:
    with pytest.raises(ValueError, match="squeeze"):
        run_model(*one_node("Squeeze", 13, [data(2, 1), ints(0)]))


@pytest.mark.parametrize("shape", [[0, -1], [3, 0, 8], [-1], [24, 1, 0]])
def test_reshape(shape: list[int]) -> None:
    for version in (7, 13, 19):
        x = data(2, 3, 4) if shape != [3, 0, 8] else data(3, 1, 8)
        x = x if shape != [24, 1, 0] else data(24, 1, 5)
        check("Reshape", version, [x, ints(*shape)])


def test_reshape_refuses_to_keep_what_is_not_there() -> None:
    with pytest.raises(ValueError, match="keeps a dimension"):
        run_model(*one_node("Reshape", 14, [data(2, 3), ints(6, 1, 0)]))


def test_reshape_allows_zero() -> None:
    check("Reshape", 14, [data(0, 3, 4), ints(3, 4, 0)], allowzero=1)
    check("Reshape", 14, [data(0, 3), ints(0, 3)])


@pytest.mark.parametrize("axis", [0, 1, 2, 4])
def test_flatten(axis: int) -> None:
    check("Flatten", 9, [data(2, 3, 4, 5)], axis=axis)
    check("Flatten", 13, [data(2, 3, 4, 5)], axis=axis - 4)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode: str) -> None:
    check("DepthToSpace", 11, [data(2, 12, 3, 4)], blocksize=2, mode=mode)
    check("SpaceToDepth", 13, [data(2, 3, 4, 6)], blocksize=2)
    check("SpaceToDepth", 28, [data(2, 3, 4, 6)], oracle="reference", blocksize=2, mode=mode)


def test_depth_to_space_of_old_opsets() -> None:
    check("DepthToSpace", 7, [data(2, 12, 3, 4)], blocksize=2)


def test_transpose() -> None:
    check("Transpose", 13, [data(2, 3, 4)])
    check("Transpose", 13, [data(2, 3, 4)], perm=[1, 0, 2])


def test_tile_and_expand() -> None:
    check("Tile", 7, [data(2, 3), ints(2, 1)])
    check("Tile", 13, [data(2, 3), ints(0, 2)])
    check("Expand", 8, [data(3, 1), ints(2, 1, 4)])
    check("Expand", 13, [data(2, 3), ints(1)])
    check("Expand", 13, [np.float32(3), ints(2, 2)])


INDICES = [np.array(2), np.array([0, -1, 3]), np.array([[1, 0], [-2, 3]]), np.zeros(0, np.int64)]


@pytest.mark.parametrize("indices", INDICES, ids=[str(i.shape) for i in INDICES])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather(indices: np.ndarray, axis: int) -> None:
    """Constant positions; the harness makes the input a constant by binding it beforehand."""
    x = data(4, 5, 6)
    model, feeds = one_node("Gather", 13, [x, indices.astype(np.int64)], axis=axis)
    with pytest.raises(Unsupported):
        run_model(model, feeds)
    (y,) = run_model(model, feeds, constants=["in1"])
    np.testing.assert_array_equal(y, np.take(x, indices, axis))


def test_gather_refuses_positions_outside() -> None:
    with pytest.raises(ValueError, match="index"):
        run_model(*one_node("Gather", 13, [data(4), ints(4)]), constants=["in1"])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_gather_nd(drawn: st.DataObject) -> None:
    """Constant positions, as the evaluator of nodes on the host reads them."""
    shape = drawn.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    batches = drawn.draw(st.integers(0, len(shape) - 1))
    along = drawn.draw(st.integers(1, len(shape) - batches))
    places = [*shape[:batches], *drawn.draw(st.lists(st.integers(0, 3), min_size=not batches, max_size=2))]
    one = st.tuples(*(st.integers(-n, n - 1) for n in shape[batches : batches + along]))
    count = math.prod(places)
    rows = drawn.draw(st.lists(one, min_size=count, max_size=count))
    indices = np.array(rows, np.int64).reshape(*places, along)
    x = data(*shape)
    model, feeds = one_node("GatherND", 13, [x, indices], batch_dims=batches)
    (y,) = run_model(model, feeds, constants=["in1"])
    (wanted,) = ReferenceEvaluator(model).run(None, feeds) if count else (y,)
    assert y.shape == (*places, *shape[batches + along :])
    np.testing.assert_array_equal(y, wanted)


def test_gather_nd_at_unknown_positions_is_for_the_host() -> None:
    with pytest.raises(Unsupported, match="known only when it runs"):
        run_model(*one_node("GatherND", 13, [data(4, 3), np.array([[1, 2]])]))
    with pytest.raises(Unsupported, match="positions"):
        run_model(*one_node("GatherND", 13, [data(2), np.zeros((1 << 16, 2, 1), np.int64)]), constants=["in1"])


@pytest.mark.parametrize(
    ("indices", "batches"),
    [
        (np.array([[4, 0]]), 0),
        (np.array([[0, -4]]), 0),
        (np.array([[0, 0, 0]]), 0),
        (np.array([[1]]), 1),
        (np.array([[1]]), -1),
        (np.array([[1]]), 2),
        (np.array(1), 0),
        (np.zeros((2, 0), np.int64), 0),
    ],
)
def test_gather_nd_refuses_positions_outside(indices: np.ndarray, batches: int) -> None:
    model, feeds = one_node("GatherND", 13, [data(4, 3), indices], batch_dims=batches)
    with pytest.raises(ValueError, match="indices"):
        run_model(model, feeds, constants=["in1"])


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [-2, 0, 1, 9])
def test_trilu(upper: int, k: int) -> None:
    check("Trilu", 14, [data(2, 4, 5), np.array(k, np.int64)], upper=upper)
    check("Trilu", 14, [data(2, 4, 5, dtype=np.int64)], upper=upper)


def test_shapes_become_constants() -> None:
    x = data(2, 3, 4)
    for version in (7, 13, 15, 21):
        check("Shape", version, [x])
        check("Size", version, [x])
    check("Shape", 15, [x], start=-2)
    check("Shape", 15, [x], start=1, end=-1)
    check("Shape", 15, [x], start=2, end=1)
    check("Shape", 15, [x], start=-9, end=9)


def test_generated_constants() -> None:
    check("ConstantOfShape", 9, [ints(2, 3)])
    check("ConstantOfShape", 9, [ints()])
    check("Range", 11, [np.float32(1), np.float32(5.5), np.float32(0.75)])
    check("Range", 11, [np.int32(10), np.int32(-3), np.int32(-4)])
    check("Range", 11, [np.int64(3), np.int64(3), np.int64(1)])
    check("EyeLike", 9, [data(3, 5)], k=-1)
    check("EyeLike", 9, [data(3, 5)], k=2, dtype=7)


def test_range_refuses_to_stand_still() -> None:
    with pytest.raises(ValueError, match="step"):
        run_model(*one_node("Range", 11, [np.int64(1), np.int64(2), np.int64(0)]))


def test_dropout_does_nothing() -> None:
    x = data(3, 4)
    check("Dropout", 7, [x], ratio=0.3)
    check("Dropout", 10, [x])
    check("Dropout", 12, [x, np.float32(0.4)], outputs=2)
    check("Dropout", 13, [x, np.float32(0.4), np.array(False)])


def test_training_dropout_runs_on_the_host() -> None:
    with pytest.raises(Unsupported, match="training"):
        run_model(*one_node("Dropout", 13, [data(3), np.float32(0.4), np.array(True)]))


def test_one_hot() -> None:
    indices = np.array([[0, -1], [3, 7]], np.int64)
    values = np.array([-1, 5], np.float32)
    for axis in (-1, 0, 1):
        check("OneHot", 11, [indices, np.array(4, np.int64), values], axis=axis)
    check("OneHot", 9, [indices, np.array([4], np.int64), values.astype(np.int64)])


def test_repeated_operands_are_broadcast_and_long_ones_take_small_tables():
    """x / Expand(s): the division reads s itself. What is repeated and stored is so in two steps."""
    size = 70000
    nodes = [
        node("ReduceMax", "x", "s", axes=[2], keepdims=1),
        node("Expand", "s shape", "e"),
        node("Div", "x e", "y"),
        node("Identity", "e", "z"),
    ]
    network = model(nodes, [tensor("x", (1, 2, size))], "y z", shape=np.array([1, 2, size]))
    graph = plan_of(network).graph
    tables = [len(t) for n in graph.nodes if isinstance(n.op, Take) for t in n.op.tables if t is not None]
    assert max(tables) < 1000
    division = next(n for n in graph.nodes if n.output == "y")
    assert all(graph.types[name].shape != (1, 2, size) for name in division.inputs if name != "x")
