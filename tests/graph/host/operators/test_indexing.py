"""Gathers, scatters and one-hot on the host, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.graph.host.helpers import Helpers, helped
from brickrt.graph.host.operators import flat_places, placed_elements
from brickrt.graph.host.operators.placed_elements import (
    elements_along,
    gathered_elements,
    scattered,
    scattered_elements,
)
from tests.support.cpu.item_threads import by_threads
from tests.support.graphs.onnx_models import compare_on_host

RANDOM = np.random.default_rng(2)
X = RANDOM.standard_normal((3, 4, 5)).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_along_an_axis_of_fewer_others(axis):
    indices = RANDOM.integers(-3, 3, (2, 3, 2))
    compare_on_host("GatherElements", X, indices, axis=axis)
    unique = np.broadcast_to(np.arange(2).reshape([2 if k == axis % 3 else 1 for k in range(3)]), (2, 2, 2))
    compare_on_host(
        "ScatterElements",
        X,
        np.ascontiguousarray(unique),
        RANDOM.standard_normal((2, 2, 2)).astype(np.float32),
        axis=axis,
    )


def test_more_elements_than_numpy_chooses_from():
    x = RANDOM.standard_normal((1, 300)).astype(np.float32)
    compare_on_host("GatherElements", x, RANDOM.integers(0, 300, (1, 200)), axis=1)


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_repeated_positions_combine(reduction):
    updates = RANDOM.standard_normal((2, 4, 5)).astype(np.float32)
    compare_on_host("ScatterElements", X, np.ones((2, 4, 5), np.int64), updates, axis=0, reduction=reduction)
    compare_on_host("ScatterND", X, np.ones((2, 1), np.int64), updates, reduction=reduction)


@pytest.mark.parametrize(("batch_dims", "shape"), [(0, (2, 2)), (0, (2, 3, 1)), (1, (3, 2, 1)), (2, (3, 4, 1))])
def test_slices_at_tuples(batch_dims, shape):
    compare_on_host("GatherND", X, RANDOM.integers(-3, 3, shape), batch_dims=batch_dims)


def test_depth_as_a_vector():
    compare_on_host("OneHot", np.array([1, -1, 7]), np.array([4]), np.array([0.5, 2], np.float32), axis=0)


@settings(max_examples=40, deadline=None)  # the first compiles
@given(st.integers(0, 999), st.integers(0, 2), st.lists(st.integers(1, 40), min_size=3, max_size=3), st.integers(1, 5))
def test_compiled_scatters_put_what_numpy_puts(seed: int, axis: int, shape: list[int], rows: int):
    """Single elements and whole rows, negative positions, the last of several at a position; every size of element."""
    rng = np.random.default_rng(seed)
    dtype = rng.choice(["bool", "int8", "float16", "float32", "int64"])
    x = rng.integers(0, 99, shape).astype(dtype)
    where = [*shape[:axis], rows, *shape[axis + 1 :]]
    indices = rng.integers(-shape[axis], shape[axis], where).astype(rng.choice([np.int32, np.int64]))
    if seed % 2:
        indices[...] = indices[:1, :, :1] if axis == 1 else indices.ravel()[0]
    updates = rng.integers(0, 99, where).astype(dtype)
    wanted = scattered(x, elements_along(x, indices, axis), updates, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placed_elements, "UNCOMPILED_ELEMENTS", 0)
        patch.setattr(placed_elements, "scattered", lambda *_: pytest.fail("in NumPy"))
        np.testing.assert_array_equal(scattered_elements(x, indices, updates, axis), wanted)
        with helped(Helpers(3, by_threads)):
            np.testing.assert_array_equal(scattered_elements(x, indices, updates, axis), wanted)


COMBINE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
SHAPES = st.lists(st.integers(1, 7), min_size=1, max_size=4)


def blocks_of(patch: pytest.MonkeyPatch, elements: int) -> None:
    """No array is too small for numbers of elements, nor for several blocks of them."""
    patch.setattr(placed_elements, "MULTI_INDEX_ELEMENTS", 0)
    patch.setattr(placed_elements, "AT_ONCE", elements)
    patch.setattr(placed_elements, "WHOLE_ROW_ELEMENTS", max(2, elements // 20))
    patch.setattr(placed_elements, "CROWDED_UPDATES", 2)
    patch.setattr(flat_places, "AT_ONCE", elements)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 999), SHAPES, st.integers(1, 9), st.sampled_from([*COMBINE]), st.sampled_from([1, 5, 40, 1000]))
def test_elements_as_numpy_reads_and_combines_them(seed: int, shape: list[int], rows: int, how: str, block: int):
    """To the bit, in the order of the updates; x with its axes in another order in memory, fewer positions than x has
    along other axes, negative ones, many at one place."""
    rng = np.random.default_rng(seed)
    axis, dtype = int(rng.integers(-len(shape), len(shape))), rng.choice(["float32", "float64", "int32", "uint8"])
    x = np.asarray((rng.standard_normal(shape) * 9).astype(dtype), order="F")
    where = [int(rng.integers(1, extent + 1)) for extent in shape]
    where[axis] = rows
    indices = rng.integers(-shape[axis], shape[axis], where).astype(rng.choice([np.int32, np.int64]))
    updates = (rng.standard_normal(where) * 9).astype(dtype)
    wanted = x.copy()
    COMBINE[how].at(wanted, elements_along(x, indices, axis), updates)
    with pytest.MonkeyPatch.context() as patch:
        blocks_of(patch, block)
        np.testing.assert_array_equal(scattered_elements(x, indices, updates, axis, how), wanted)
        np.testing.assert_array_equal(gathered_elements(x, indices, axis), x[elements_along(x, indices, axis)])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 999), SHAPES, st.integers(1, 9), st.sampled_from([*COMBINE]), st.sampled_from([1, 5, 40, 1000]))
def test_parts_as_numpy_combines_them(seed: int, shape: list[int], rows: int, how: str, block: int):
    rng = np.random.default_rng(seed)
    lead = int(rng.integers(1, len(shape) + 1))
    x = np.asarray(rng.standard_normal(shape).astype(np.float32), order="F")
    where = tuple(rng.integers(-extent, extent, (2, rows)) for extent in shape[:lead])
    updates = rng.standard_normal((2, rows, *shape[lead:])).astype(np.float32)
    wanted = x.copy()
    COMBINE[how].at(wanted, where, updates)
    with pytest.MonkeyPatch.context() as patch:
        blocks_of(patch, block)
        np.testing.assert_array_equal(scattered(x, where, updates, how), wanted)


@pytest.mark.parametrize("wrong", [4, -5, 2**62])
def test_a_position_that_is_not_there_is_named(wrong: int, monkeypatch: pytest.MonkeyPatch):
    blocks_of(monkeypatch, 8)
    indices = np.zeros((3, 7), np.int64)
    indices[2, 5] = wrong
    x, words = np.zeros((4, 7)), f"index {wrong} is out of bounds for axis 0 with size 4"
    with pytest.raises(IndexError, match=words):
        gathered_elements(x, indices, 0)
    with pytest.raises(IndexError, match=words):
        scattered_elements(x, indices, np.ones((3, 7)), 0, "add")
    with pytest.raises(IndexError, match=words):
        scattered(x, (indices[:, 5],), np.ones((3, 7)), "add")


@pytest.mark.parametrize("wrong", [5, -6, 2**62, -(2**63)])
def test_a_position_that_is_not_there_is_named_and_not_written(wrong: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(placed_elements, "UNCOMPILED_ELEMENTS", 0)
    indices = np.zeros((3, 20), np.int64)
    indices[1, 17] = wrong
    with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for axis 0 with size 5"):
        scattered_elements(np.zeros((5, 20)), indices, np.ones((3, 20)), 0)


@pytest.mark.parametrize(
    ("spans", "axes"),
    [
        ([(-9, -20, -1)], [0]),  # begins before the first position, and there is something of it
        ([(-9, -20, -2), (7, 1, -3)], [2, 1]),
        ([(1, 9, 2), (-3, -1, 1)], [-1, 0]),
        ([(0, 2, 1), (3, 0, -1), (2, 2, 1)], None),
    ],
)
def test_parts(spans, axes):
    first, end, step = (np.array(column, np.int64) for column in zip(*spans, strict=True))
    where = None if axes is None else np.array(axes, np.int64)
    if where is None:
        compare_on_host("Slice", X, first, end, np.arange(len(spans)), step)
    compare_on_host("Slice", X, first, end, where, step)
