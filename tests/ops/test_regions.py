"""The one promise of `region`: a box computed from exactly the returned inputs is that part of the whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brickrt.ops.base import Slab, crop, evaluate_whole
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.move import Take, View
from brickrt.ops.regions import RangeMin
from brickrt.ops.types import Boxes, TensorType
from tests.support.op_strategies import F32, FAMILIES, OperatorCase, boxes_of, concats, convolutions, takes, transposes

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def cropped(case: OperatorCase, box: Boxes) -> list[Slab]:
    """Slabs that hold the regions of `box`, and nothing more."""
    out = case.op.infer(case.ins)
    slabs = []
    for i, array in enumerate(case.arrays):
        region = case.op.region(i, box, case.ins, out)
        whole = Slab(array, (0,) * array.ndim)
        slabs.append(Slab(np.array(crop(whole, region)), tuple(region.lo[0].tolist())))
    return slabs


@pytest.mark.parametrize("family", FAMILIES)
@settings(relaxed, max_examples=20)
@given(data=st.data())
def test_box_from_its_regions_is_slice_of_whole(family: str, data: st.DataObject) -> None:
    case = data.draw(FAMILIES[family])
    out = case.op.infer(case.ins)
    box = data.draw(boxes_of(out.shape, 1))
    whole = evaluate_whole(case.op, case.arrays)
    part = case.op.evaluate(box, cropped(case, box), case.ins, out)
    assert whole.shape == out.shape and whole.dtype == part.dtype == out.dtype
    np.testing.assert_array_equal(part, whole[box.slices()])


@pytest.mark.parametrize("family", FAMILIES)
@settings(relaxed, max_examples=20)
@given(data=st.data())
def test_many_boxes_give_what_each_gives(family: str, data: st.DataObject) -> None:
    case = data.draw(FAMILIES[family])
    out = case.op.infer(case.ins)
    boxes = data.draw(boxes_of(out.shape, 3, empty=True))
    for i, t in enumerate(case.ins):
        together = case.op.region(i, boxes, case.ins, out)
        assert (together.lo >= 0).all() and (together.lo <= together.hi).all()
        assert (together.hi <= np.asarray(t.shape)).all()
        for k in range(3):
            alone = case.op.region(i, boxes[k], case.ins, out)
            np.testing.assert_array_equal(together.lo[k], alone.lo[0])
            np.testing.assert_array_equal(together.hi[k], alone.hi[0])


@pytest.mark.parametrize("family", FAMILIES)
@settings(relaxed, max_examples=20)
@given(data=st.data())
def test_empty_box_reads_nothing_and_is_empty(family: str, data: st.DataObject) -> None:
    case = data.draw(FAMILIES[family])
    out = case.op.infer(case.ins)
    if out.rank == 0:
        return
    box = data.draw(boxes_of(out.shape, 1))
    axis = data.draw(st.integers(0, out.rank - 1))
    box.hi[0, axis] = box.lo[0, axis]
    for i, t in enumerate(case.ins):
        assert t.rank == 0 or case.op.region(i, box, case.ins, out).volumes[0] == 0
    part = case.op.evaluate(box, cropped(case, box), case.ins, out)
    assert part.shape == tuple(box.extents[0]) and part.dtype == out.dtype


TIGHT = {
    "conv": convolutions(False, plain=True),
    "conv_transpose": convolutions(True, plain=True),
    "take": takes(),
    "concat": concats(),
    "transpose": transposes(),
}


@pytest.mark.parametrize("family", TIGHT)
@settings(relaxed, max_examples=20)
@given(data=st.data())
def test_region_is_tight(family: str, data: st.DataObject) -> None:
    """The first and the last index of input 0's region, along every axis, reach the box."""
    case = data.draw(TIGHT[family])
    out = case.op.infer(case.ins)
    box = data.draw(boxes_of(out.shape, 1))
    region = case.op.region(0, box, case.ins, out)
    if region.volumes[0] == 0:
        return
    others = [np.ones_like(a) for a in case.arrays[1:]] if isinstance(case.op, Conv | ConvTranspose) else None
    for axis in range(region.rank):
        for index in (region.lo[0, axis], region.hi[0, axis] - 1):
            x = np.zeros_like(case.arrays[0])
            x[(slice(None),) * axis + (index,)] = 1
            rest: Sequence[np.ndarray] = others or [np.zeros_like(a) for a in case.arrays[1:]]
            assert evaluate_whole(case.op, [x, *rest])[box.slices()].any()


def test_window_region() -> None:
    """Kernel 3, stride 2, dilation 2, pad 1: output [1, 3) reads [1, 8)."""
    op = Conv((3,), (2,), (2,), (1,), (1,))
    ins = [TensorType((1, 4, 9), F32), TensorType((6, 4, 3), F32)]
    region = op.region(0, Boxes.one((0, 2, 1), (1, 5, 3)), ins, op.infer(ins))
    assert (region.lo.tolist(), region.hi.tolist()) == ([[0, 0, 1]], [[1, 4, 8]])


def test_grouped_region_reads_its_groups() -> None:
    op = Conv((1,), (1,), (1,), (0,), (0,), groups=3)
    ins = [TensorType((1, 6, 5), F32), TensorType((6, 2, 1), F32)]
    region = op.region(0, Boxes.one((0, 1, 0), (1, 3, 5)), ins, op.infer(ins))
    assert (region.lo[0, 1], region.hi[0, 1]) == (0, 4)


def test_box_of_padding_alone_reads_nothing() -> None:
    op = Conv((3,), (1,), (1,), (6,), (6,))
    ins = [TensorType((1, 1, 4), F32), TensorType((1, 1, 3), F32)]
    region = op.region(0, Boxes.one((0, 0, 0), (1, 1, 3)), ins, op.infer(ins))
    assert region.volumes[0] == 0


def test_take_of_fill_alone_reads_nothing() -> None:
    op = Take(((-1, -1, 2, 0, -1), None))
    ins = [TensorType((3, 4), F32)]
    region = op.region(
        0, Boxes(np.array([[0, 0], [2, 1], [1, 1]]), np.array([[2, 4], [4, 3], [3, 2]])), ins, op.infer(ins)
    )
    assert region.volumes[0] == 0
    assert (region.lo[1:].tolist(), region.hi[1:].tolist()) == ([[0, 1], [2, 1]], [[3, 3], [3, 2]])


@pytest.mark.parametrize(
    ("before", "after", "box", "expected"),
    [
        ((2, 3, 4, 5), (2, 3, 20), ((1, 0, 0), (2, 2, 20)), ((1, 0, 0, 0), (2, 2, 4, 5))),
        ((2, 3, 4, 5), (2, 3, 20), ((1, 0, 5), (2, 2, 10)), ((1, 0, 1, 0), (2, 2, 2, 5))),
        ((2, 12, 5), (2, 3, 4, 5), ((0, 1, 0, 2), (2, 3, 4, 4)), ((0, 4, 2), (2, 12, 4))),
        ((4, 1, 3), (1, 4, 3, 1), ((0, 1, 2, 0), (1, 3, 3, 1)), ((1, 0, 2), (3, 1, 3))),
        ((4, 6), (3, 8), ((1, 0), (2, 8)), ((1, 0), (3, 6))),
    ],
)
def test_view_region(before, after, box, expected) -> None:
    ins = [TensorType(before, F32)]
    region = View(after).region(0, Boxes.one(*box), ins, TensorType(after, F32))
    assert (tuple(region.lo[0].tolist()), tuple(region.hi[0].tolist())) == expected


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=40), st.data())
def test_range_min(values: list[int], data: st.DataObject) -> None:
    lo = data.draw(st.integers(0, len(values) - 1))
    hi = data.draw(st.integers(lo + 1, len(values)))
    assert RangeMin(np.asarray(values))(np.array([lo]), np.array([hi]))[0] == min(values[lo:hi])


@settings(relaxed, max_examples=20)
@given(st.integers(1, 1000), st.integers(0, 2**20))
def test_range_min_of_long_tables(length: int, seed: int) -> None:
    """Ranges inside of one block, from one to the next, and over several."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-1000, 1000, length)
    lo = rng.integers(0, length, 200)
    hi = lo + 1 + rng.integers(0, length - lo)
    wanted = [values[a:b].min() for a, b in zip(lo, hi, strict=True)]
    np.testing.assert_array_equal(RangeMin(values)(lo, hi), wanted)
