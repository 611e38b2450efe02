"""Reductions against the NumPy definition: which axes, how operands lie, and what boxes cut."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from brickrt.ops.cpu.reductions import reduce as reduce_kernels  # noqa: F401  (registers the kernels)
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.reduce import Reduce
from tests.support.cpu.harness import AVX2, HOST, check, random_boxes, run_kernel

F32 = "float32"


def data(*shape: int, seed: int = 0, dtype: str = F32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def all_axes(rank: int) -> list[tuple[int, ...]]:
    return [axes for n in range(1, rank + 1) for axes in itertools.combinations(range(rank), n)]


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axes", all_axes(4))
def test_plain(axes, keepdims):
    check(Reduce("sum", axes, keepdims), [data(2, 5, 6, 39)], atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1,), (0,)),
        ((7,), (0,)),
        ((1000,), (0,)),
        ((3, 70), (1,)),
        ((3, 70), (0,)),
        ((4, 3, 1), (1,)),
        ((4, 1, 33, 1), (1, 3)),
        ((1, 1, 1), (0, 2)),
        ((2, 3, 1, 4, 5, 6), (1, 4)),
        ((2, 3, 70, 2), (2,)),
    ],
)
def test_plain_shapes(shape, axes):
    check(Reduce("sum", axes, True), [data(*shape)], AVX2, atol=1e-5)


def by_turns(axes):
    """Axes, channels and instruction sets, of which any two meet in all combinations."""
    rows = [
        pytest.param(
            each, channels, (HOST, AVX2)[(i + k) % 2], id=f"{each}-{channels}-{('avx512', 'avx2')[(i + k) % 2]}"
        )
        for i, each in enumerate(axes)
        for k, channels in enumerate((1, 16, 37))
    ]
    return pytest.mark.parametrize(("axes", "channels", "isa"), rows)


@by_turns([(2, 3), (3,), (2,), (0, 2, 3)])
def test_blocked_over_space(axes, channels, isa):
    x = data(2, channels, 5, 9)
    check(Reduce("sum", axes, True), [x], isa, blocks=[isa.lanes], out_block=isa.lanes, atol=1e-5)
    check(Reduce("max", axes, False), [x], isa, blocks=[isa.lanes])


@by_turns([(1,), (1, 3), (1, 2, 3), (0, 1), (0, 1, 2, 3)])
def test_blocked_over_channels(axes, channels, isa):
    x = data(2, channels, 5, 41)
    check(Reduce("sum", axes, True), [x], isa, blocks=[isa.lanes], atol=1e-5)
    check(Reduce("max", axes, False), [x], isa, blocks=[isa.lanes])


def test_blocked_matrix_to_matrix():
    check(Reduce("sum", (0,), True), [data(7, 37)], blocks=[16], out_block=16)
    check(Reduce("sum", (1,), True), [data(7, 37)], blocks=[16], out_block=16)


def test_global_pool_of_a_plain_tensor_to_a_blocked_one():
    check(Reduce("sum", (2, 3), True), [data(2, 37, 5, 6)], out_block=16, atol=1e-5)


def test_a_blocked_output_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="plan it as plain"):
        check(Reduce("sum", (2,), True), [data(2, 37, 5, 6)], out_block=16)


TYPES, WAYS = ("float64", "float16", "int64", "int32", "uint8", "int8"), ("sum", "prod", "max", "min")
PLACES = (((1,), 1), ((2, 3), 16), ((3,), 1), ((1,), 16))  # axes, and the block of the input


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("how", WAYS)
def test_dtypes(how, dtype):
    """Axes and blocks by turns: each type and each way meets all of them."""
    axes, block = PLACES[(TYPES.index(dtype) + WAYS.index(how)) % 4]
    rng = np.random.default_rng(0)
    x = rng.integers(-3 if dtype[0] != "u" else 1, 3, (2, 19, 3, 21)).astype(dtype)
    if dtype[0] == "f":
        x = x + np.asarray(0.5, dtype)
    rtol = 2e-3 if dtype == "float16" else 1e-5
    check(Reduce(how, axes, True), [x], blocks=[block], scratch=False, rtol=rtol)


@pytest.mark.parametrize("how", ["max", "min"])
@pytest.mark.parametrize("axes", [(0,), (1,)])
def test_booleans(how, axes):
    check(Reduce(how, axes, True), [np.random.default_rng(0).random((5, 37)) < 0.5])


@pytest.mark.parametrize("how", ["max", "min", "sum"])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_nan_and_infinity(how, axes):
    x = data(20, 37)
    x[3, 5], x[7, 36], x[11, 8], x[19, 0] = np.nan, np.nan, np.inf, -np.inf
    check(Reduce(how, axes, True), [x])


@pytest.mark.parametrize("how", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_nothing_gives_the_identity(how, axes):
    shape = [3, 20]
    shape[axes[-1]] = 0
    check(Reduce(how, axes, True), [np.zeros(shape, np.float32)])


def variance() -> Reduce:
    """Mean of (x0 - x1)², plus a little: what a layer norm divides by."""
    d = apply("sub", arg(0, F32), arg(1, F32))
    post = apply("add", apply("mul", arg(0, F32), const(1 / 37, F32)), const(1e-5, F32))
    return Reduce("sum", (1,), True, apply("mul", d, d), apply("sqrt", post))


@pytest.mark.parametrize("blocks", [[1, 1], [16, 1]])
def test_pre_and_post(blocks):
    check(variance(), [data(2, 37, 5, 41), data(2, 1, 5, 41, seed=1)], blocks=blocks)


@pytest.mark.parametrize(
    ("shape", "axes", "block"),
    [
        (shape, axes, (16, 1)[(i + k) % 2])
        for i, shape in enumerate([(37, 1, 1), (41,), (), (2, 37, 1, 41), (1, 37, 5, 1)])
        for k, axes in enumerate([(1,), (2, 3), (3,)])
    ],
)
def test_pre_with_operands_that_broadcast(shape, axes, block):
    """Any two of the three parameters meet in all combinations."""
    op = Reduce("sum", axes, True, apply("mul", arg(0, F32), arg(1, F32)))
    blocked = len(shape) == 4
    check(op, [data(2, 37, 5, 41), data(*shape, seed=1)], blocks=[block, block if blocked else 1], atol=1e-5)


@pytest.mark.parametrize("block", [1, 16])
def test_packed_constants(block):
    op = Reduce("sum", (2, 3), True, apply("mul", arg(0, F32), arg(1, F32)))
    arrays = [data(2, 37, 5, 6), data(1, 37, 1, 1, seed=1)]
    check(op, arrays, blocks=[block] * 2, packed=[False, True], out_block=block, atol=1e-5)


@pytest.mark.parametrize("shape", [(3_000_001,), (30_000, 20), (1500, 16, 100)])
def test_long_sums_stay_accurate(shape):
    """A plain float32 loop over tenths would be off by 1e-3 and more."""
    x = np.full(shape, 0.1, np.float32)
    axes = (0,) if len(shape) < 3 else (0, 2)
    check(Reduce("sum", axes, True), [x], rtol=1e-6, scratch=False)


@pytest.mark.parametrize(("axes", "block"), [((1,), 1), ((3,), 1), ((1,), 16), ((2,), 16), ((1, 2, 3), 16)])
def test_the_box_does_not_change_a_bit(axes, block):
    op, x = Reduce("sum", axes, True), data(2, 70, 9, 50)
    shape = tuple(1 if d in axes else e for d, e in enumerate(x.shape))
    whole, *boxes = random_boxes(shape, 5, block)
    want = run_kernel(op, [x], whole, blocks=[block])
    for box in boxes:
        np.testing.assert_array_equal(run_kernel(op, [x], box, blocks=[block]), want[box.slices()])
