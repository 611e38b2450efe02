"""Row-wise kernels against the NumPy definition: which axes, how operands lie, and what boxes cut."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.cpu.reductions import rowwise as rowwise_kernels  # noqa: F401  (registers the kernels)
from brickrt.ops.expr import Expr, apply, arg, const
from brickrt.ops.operators.rowwise import Rowwise, Step
from brickrt.ops.types import Boxes
from tests.support.cpu.few_boxes import check_few
from tests.support.cpu.harness import AVX2, HOST, check, run_kernel

KEPT = pytest.mark.parametrize(("kept", "isa"), [(False, HOST), (True, AVX2)], ids=["avx512", "kept avx2"])


def data(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def norm(axes: tuple[int, ...], count: int, affine: bool = False, dtype: str = "float32") -> Rowwise:
    """(x - mean) / sqrt(variance + ε), times a weight plus a bias if `affine`."""
    inputs = 3 if affine else 1
    x, mean, spread = (arg(k, dtype) for k in (0, inputs, inputs + 1))
    centred = apply("sub", x, mean)
    average = apply("div", arg(0, dtype), const(count, dtype))
    inverse = apply("reciprocal", apply("sqrt", apply("add", average, const(1e-5, dtype))))
    y: Expr = apply("mul", centred, spread)
    if affine:
        y = apply("add", apply("mul", y, arg(1, dtype)), arg(2, dtype))
    return Rowwise(axes, (Step("sum", x, average), Step("sum", apply("mul", centred, centred), inverse)), y)


def softmax(axes: tuple[int, ...], kept: bool) -> Rowwise:
    x, top, total = (arg(k, "float32") for k in range(3))
    power = apply("exp", apply("sub", x, top))
    pre, value = (arg(3, "float32"), arg(3, "float32")) if kept else (power, power)
    steps = (Step("max", x), Step("sum", pre, apply("reciprocal", arg(0, "float32"))))
    return Rowwise(axes, steps, apply("mul", value, total), power if kept else None)


@KEPT
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((7,), (0,)),
        ((3, 1000), (1,)),
        ((2, 5, 33), (2,)),
        ((2, 5, 33), (1,)),
        ((2, 5, 33), (0, 2)),
        ((2, 5, 6, 39), (2, 3)),
        ((2, 5, 6, 39), (1, 3)),
        ((2, 70, 3, 1), (1,)),
        ((1, 1, 150), (2,)),
        ((3, 4, 130), (0,)),
        ((1, 1, 1), (0, 2)),
    ],
)
def test_plain(shape, axes, kept, isa):
    check_few(softmax(axes, kept), [data(*shape)], isa)


@pytest.mark.parametrize(
    ("axes", "channels", "isa"),
    [
        (axes, channels, (HOST, AVX2)[(i + k) % 2])
        for i, axes in enumerate([(1,), (1, 3), (1, 2, 3), (2, 3), (3,), (0, 1)])
        for k, channels in enumerate([3, 16, 32, 37])
    ],
)
def test_blocked(axes, channels, isa):
    """Any two of the three parameters meet in all combinations."""
    x = data(2, channels, 5, 41)
    count = int(np.prod([x.shape[k] for k in axes]))
    check_few(norm(axes, count), [x], isa, blocks=[isa.lanes], out_block=isa.lanes, atol=1e-5)


@pytest.mark.parametrize(
    ("width", "kept", "isa"),
    [*((width, False, HOST) for width in (1, 15, 16, 17, 130)), *((width, True, AVX2) for width in (1, 7, 31, 300))],
)
def test_rows_of_pixels_of_any_length(width, kept, isa):
    """Chunks end within a row, and a row is shorter than a vector of pixels."""
    check_few(softmax((1,), kept), [data(2, 20, 3, width)], isa, blocks=[isa.lanes], out_block=isa.lanes)


@pytest.mark.parametrize(
    ("packed", "block", "isa"),
    [(False, False, HOST), (True, True, HOST), (False, True, AVX2), (True, False, AVX2)],  # any two meet
)
def test_weight_and_bias(packed, block, isa):
    x = data(2, 37, 3, 18)
    lanes = isa.lanes if block else 1
    operands = [x, data(1, 37, 1, 1, seed=1), data(37, 1, 1, seed=2)]
    flags = [False, packed, packed]
    blocks = [lanes, lanes, 1]
    check_few(norm((1,), 37, True), operands, isa, blocks=blocks, out_block=lanes, packed=flags, atol=1e-5)
    last = [data(2, 3, 37), data(37, seed=1), data(1, 1, 37, seed=2)]
    check_few(norm((2,), 37, True), last, isa, packed=flags, atol=1e-5)


@pytest.mark.parametrize("channels", [32, 64, 128, 144, 256])
def test_chunks_of_pixels_of_any_number_of_channels(channels):
    """L1 holds few pixels of many channels; how many channels there are is a size where they fill blocks."""
    x = data(1, channels, 2, 19)
    check(norm((1,), channels), [x], blocks=[16], out_block=16, atol=1e-5)


def test_a_large_mean_costs_no_accuracy():
    """Variances are of centred values: a mean of a thousand deviations leaves what the rounding of x leaves."""
    x = data(1, 32, 2, 40) + np.float32(1000)
    check(norm((1,), 32), [x], blocks=[16], out_block=16, atol=3e-4)


def test_wide_types():
    check(norm((1,), 20, dtype="float64"), [data(2, 20, 3, 18, dtype="float64")], blocks=[16], out_block=16)
    check(norm((2,), 20, dtype="float64"), [data(2, 3, 20, dtype="float64")], AVX2)


def test_boxes_that_cut_rows():
    """The part of a row that a box holds depends on all of the row."""
    x = data(3, 70, 5)
    boxes = [Boxes.one([1, 3, 0], [3, 65, 5]), Boxes.one([0, 20, 1], [3, 21, 4])]
    for kept in (False, True):
        for axes in ((1,), (1, 2), (2,)):
            check(softmax(axes, kept), [x], boxes=boxes)
    blocked = [Boxes.one([1, 16, 0, 0], [2, 48, 2, 3])]
    for axes in ((1,), (1, 2)):
        check(softmax(axes, True), [data(2, 70, 3, 4)], boxes=blocked, blocks=[16], out_block=16)


def test_a_pixel_has_the_same_bits_in_any_box():
    x = data(1, 37, 4, 50)
    op = norm((1,), 37)
    whole = run_kernel(op, [x], Boxes.whole(x.shape), blocks=[16], out_block=16)
    for lo, hi in ((0, 50), (3, 20), (11, 14), (40, 50)):
        part = run_kernel(op, [x], Boxes.one([0, 0, 1, lo], [1, 37, 3, hi]), blocks=[16], out_block=16, scratch=True)
        np.testing.assert_array_equal(part, whole[:, :, 1:3, lo:hi])


def test_an_output_that_lies_otherwise_is_refused():
    with pytest.raises(ValueError, match="blocked alike"):
        check(softmax((1,), False), [data(2, 37, 5, 6)], out_block=16)
