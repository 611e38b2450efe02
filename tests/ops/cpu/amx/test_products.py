"""Products in tile registers against the definition in float64, which integers equal.

|error| of an output of float32  ≤  ERROR · |what it reads| · |its weights|
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.amx import scheme
from brickrt.ops.cpu.amx.kernel import AmxKernel, AmxMaker
from brickrt.ops.cpu.compile import to_object
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.sized_kernel import emit_sized
from brickrt.ops.expr import apply, arg, cast, const
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu import harness
from tests.support.cpu.conv_cases import transposed
from tests.support.cpu.harness import random_boxes, run_kernel
from tests.support.cpu.outliers import with_outlier
from tests.support.cpu.tiles import DESCRIBED, HOST_TILES, needs_tiles

F32, BF16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
ERROR = 3e-7
KINDS = ("float32", "bfloat16", "uint8")
RELU = apply("max", arg(0, F32), const(0, F32))


def drawn(kind, *shapes, seed=0):
    """A first operand, weights, and a bias of the type of sums."""
    rng = np.random.default_rng(seed)
    x, w, *bias = shapes
    if kind == "uint8":
        made = [rng.integers(0, 256, x, np.uint8), rng.integers(-128, 128, w, np.int8)]
        return [*made, *(rng.integers(-999, 999, b).astype(np.int32) for b in bias)]
    made = [rng.standard_normal(shape).astype(np.float32).astype(kind) for shape in (x, w)]
    return [*made, *(rng.standard_normal(b).astype(np.float32) for b in bias)]


def lengths(op, given):
    """How long what each output reads is, times how long its weights are."""
    x, w = (np.abs(each.astype(np.float64)) for each in given[:2])
    kernel = MatMul() if isinstance(op, MatMul) else Conv(op.kernel, op.strides, op.dilations, op.pads, op.pads_end)
    ones = np.ones_like(w)
    reads = np.sqrt(evaluate_whole(kernel, [x**2, ones]))
    axes = 0 if isinstance(op, MatMul) else tuple(range(1, w.ndim))
    norms = np.sqrt((w**2).sum(axis=axes))
    return reads * (norms if isinstance(op, MatMul) else norms.reshape(-1, *(1,) * (w.ndim - 2)))


def compare(op, given, boxes=None):
    """The kernel's outputs of some boxes with the definition's."""
    images = isinstance(op, Conv)
    packed = [0 < i < op.main for i in range(len(given))]
    blocks = [16 if images and not constant and given[i].ndim > 2 else 1 for i, constant in enumerate(packed)]
    want = evaluate_whole(op, given)
    bound = 0 if given[0].dtype == np.uint8 else lengths(op, given) + np.abs(want)
    for box in boxes or random_boxes(want.shape, 3, 16):
        got = run_kernel(
            op, given, box, HOST_TILES, blocks=blocks, out_block=16 if images else 1, packed=packed,
            kernel_cls=AmxMaker(),
        )  # fmt: skip
        part = box.slices()
        if given[0].dtype == np.uint8:
            np.testing.assert_array_equal(got, want[part])
        else:
            error = ERROR if given[0].dtype == F32 else 4e-3  # outputs of bfloat16 are rounded
            assert (np.abs(got.astype(np.float64) - want[part]) <= error * bound[part]).all()


def conv(kernel, strides=None, dilations=None, pads=None, end=None, **options):
    ones = (1,) * len(kernel)
    pads = pads or (0,) * len(kernel)
    return Conv(kernel, strides or ones, dilations or ones, pads, end or pads, **options)


CASES = {
    "1d": (conv((3,), pads=(1,)), (5, 7), 21),
    "1d strided, dilated": (conv((3,), (2,), (3,), (4,), (1,)), (19, 10), 3),
    "2d": (conv((3, 3), pads=(1, 1)), (17, 4, 5), 20),
    "2d uneven pads": (conv((2, 3), pads=(0, 2), end=(2, 1)), (5, 3, 4), 18),
    "2d strides": (conv((3, 2), (2, 3), pads=(1, 0), end=(0, 1)), (20, 6, 8), 7),
    "2d strides and dilations of one factor": (conv((3, 3), (2, 2), (2, 2), (1, 2)), (6, 9, 8), 33),
    "2d dilated": (conv((3, 2), (1, 1), (2, 3), (2, 1)), (6, 5, 5), 18),
    "2d kernel larger than the image": (conv((5, 4), pads=(3, 3)), (3, 2, 3), 17),
    "2d pads beyond the kernel": (conv((2, 2), pads=(3, 3)), (3, 2, 2), 4),
    "pointwise": (conv((1, 1)), (33, 7, 9), 50),
    "pointwise, strided": (conv((1, 1), (2, 3)), (64, 7, 9), 16),
    "3d": (conv((3, 2, 3), (1, 2, 1), pads=(1, 0, 1)), (35, 4, 5, 6), 34),
    "many channels": (conv((3, 3), pads=(1, 1)), (130, 3, 4), 100),
    "few channels, long rows": (conv((3, 5), (1, 2), pads=(1, 2)), (3, 6, 75), 20),
    "few channels, 3d": (conv((2, 3, 3), (2, 1, 3), pads=(1, 0, 2), end=(0, 1, 1)), (4, 5, 6, 22), 17),
    "few channels, wide window": (conv((1, 19), (1, 1), pads=(0, 9)), (2, 3, 40), 9),
    "few channels, signal": (conv((9,), (4,), pads=(3,)), (1, 150), 33),
    "one channel": (conv((3, 3), pads=(1, 1)), (1, 9, 9), 1),
}


def two_kinds_of_each(names):
    """Names with two of three kinds, by turns: those next to each other, which are alike, meet all of them."""
    pairs = [(name, kind) for i, name in enumerate(names) for k, kind in enumerate(KINDS) if (i + k) % 3]
    return pytest.mark.parametrize(("name", "kind"), pairs)


@needs_tiles
@two_kinds_of_each(CASES)
def test_convolutions(name, kind):
    op, x, outputs = CASES[name]
    compare(op, drawn(kind, (2, *x), (outputs, x[0], *op.kernel)))


TRANSPOSED = {
    "2d": (transposed((2, 2), (2, 2)), (40, 5, 7), 33),
    "uneven": (transposed((2, 3), (2, 3), bias=True), (17, 4, 5), 16),
    "1d": (transposed((4,), (4,)), (35, 9), 20),
    "3d": (transposed((2, 1, 2), (2, 1, 2), bias=True), (5, 3, 4, 3), 50),
}


@needs_tiles
@two_kinds_of_each(TRANSPOSED)
def test_transposed_windows_that_lie_side_by_side(name, kind):
    """Boxes cut windows between outputs, too."""
    op, x, outputs = TRANSPOSED[name]
    given = drawn(kind, (2, *x), (x[0], outputs, *op.kernel), *([(outputs,)] if op.bias else []))
    if op.bias and kind == "bfloat16":
        given[2] = given[2].astype(BF16)
    want = evaluate_whole(op, given)
    for box in random_boxes(want.shape, 6, 16):
        got = run_kernel(
            op, given, box, HOST_TILES, blocks=[16, 1, 1][: len(given)], out_block=16,
            packed=[False, True, True][: len(given)], kernel_cls=AmxMaker(),
        )  # fmt: skip
        error = {"float32": 1e-6, "bfloat16": 8e-3, "uint8": 0}[kind]
        wide = np.abs(got.astype(np.float64) - want[box.slices()].astype(np.float64))
        assert (wide <= error * np.abs(want.astype(np.float64)).max()).all()


@needs_tiles
@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.integers(1, 70),
    st.sampled_from([1, 3, 32, 64, 100, 200]),
    st.sampled_from([1, 15, 32, 64, 70]),
    st.booleans(),
)
@example("float32", 33, 200, 70, True)
@example("bfloat16", 67, 3, 15, False)
@example("uint8", 18, 100, 64, True)
def test_matrices(kind, rows, depth, columns, bias):
    compare(MatMul(bias), drawn(kind, (2, rows, depth), (depth, columns), *([(columns,)] if bias else []), seed=rows))


@needs_tiles
@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_are_cut_anywhere(kind):
    given = drawn(kind, (1, 40, 70), (70, 90), (90,))
    compare(MatMul(True), given, [Boxes.one((0, 3, 5), (1, 37, 41)), Boxes.one((0, 0, 31), (1, 40, 33))])


@needs_tiles
@pytest.mark.parametrize("kind", ["float32", "uint8"])
def test_an_epilogue_with_a_residual(kind):
    out = F32 if kind != "uint8" else np.dtype(np.int32)
    sum_ = apply("max", apply("add", arg(0, out), arg(1, out)), const(0, out))
    op = conv((3, 3), pads=(1, 1), bias=True, epilogue=sum_)
    given = drawn(kind, (1, 40, 6, 7), (50, 40, 3, 3), (50,))
    residual = np.random.default_rng(1).integers(-9, 9, (1, 50, 6, 7)).astype(out)
    compare(op, [*given, residual])


@needs_tiles
@pytest.mark.parametrize("depth", [40, 300])
@pytest.mark.parametrize("columns", [4, 7, 1])
def test_rows_that_are_walked_as_one(monkeypatch, columns, depth):
    """An operand that each row has one value of keeps them apart; so do boxes of some columns. Bytes are finished in
    runs of the pixels that a step has to finish, which little room makes end anywhere."""
    monkeypatch.setattr(scheme.AmxScheme, "plane_pixels", 50)
    monkeypatch.setattr(harness, "_COMPILED", {})
    harness.compiled.cache_clear()
    sums, residual, factor = cast(arg(0, np.dtype(np.int32)), F32), arg(1, F32), arg(2, F32)
    scaled = apply("add", apply("mul", sums, const(2.0**-9, F32)), residual)
    rng = np.random.default_rng(3)
    given = [*drawn("uint8", (2, depth, 23, columns), (50, depth, 1, 1)), rng.integers(-99, 99, (2, 50, 23, columns))]
    given[2] = given[2].astype(np.float32)
    compare(conv((1, 1), epilogue=as_byte(scaled)), given)
    by_row = rng.choice([0.5, 1.0, 2.0], (1, 1, 23, 1)).astype(np.float32)
    compare(conv((1, 1), epilogue=as_byte(apply("mul", scaled, factor))), [*given, by_row])


def as_byte(value):
    """A float as QuantizeLinear stores it."""
    bounded = apply("min", apply("max", apply("round", value), const(0, F32)), const(255, F32))
    return cast(bounded, np.dtype(np.uint8))


@needs_tiles
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("images", [1, 2])
def test_factors_of_channels(kind, images):
    """Squeeze and excitation; lanes beyond the last channel hold NaN. In bfloat16 products of factors are rounded."""
    op = conv((1, 1), channel_scaled=True, epilogue=None if kind == "bfloat16" else RELU)
    x, w = drawn(kind, (2, 37, 5, 5), (20, 37, 1, 1))
    factors = np.random.default_rng(2).standard_normal((images, 37, 1, 1)).astype(np.float32).astype(kind)
    want = evaluate_whole(op, [x, w, factors])
    got = run_kernel(
        op, [x, w, factors], Boxes.whole(want.shape), HOST_TILES, blocks=[16, 1, 16], out_block=16,
        packed=[False, True, False], kernel_cls=AmxMaker(),
    )  # fmt: skip
    assert np.abs(got.astype(np.float64) - want).max() < (8e-3 if kind == "bfloat16" else 1e-6) * np.abs(want).max()


@needs_tiles
@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_chunks_nor_boxes(monkeypatch, kind):
    """Little room makes many chunks of rows and of columns."""
    op, given = conv((3, 3), (1, 2), pads=(1, 1)), drawn(kind, (1, 40, 23, 150), (36, 40, 3, 3))

    def outputs(*boxes):
        packed, whole = [False, True], None
        for box in boxes:
            got = run_kernel(
                op, given, box, HOST_TILES, blocks=[16, 1], out_block=16, packed=packed, kernel_cls=AmxMaker()
            )
            whole = np.zeros((1, 36, 23, 75), got.dtype) if whole is None else whole
            whole[box.slices()] = got
        return whole

    large = outputs(Boxes.whole((1, 36, 23, 75)))
    monkeypatch.setattr(scheme.AmxScheme, "plane_pixels", 100)
    monkeypatch.setattr(scheme, "LEAST_CHUNK_COLUMNS", 8)
    monkeypatch.setattr(harness, "_COMPILED", {})
    harness.compiled.cache_clear()
    cuts = [((0, 0, 0, 0), (1, 16, 9, 75)), ((0, 16, 0, 0), (1, 36, 9, 40)), ((0, 16, 0, 40), (1, 36, 9, 75))]
    small = outputs(Boxes.one((0, 0, 9, 0), (1, 36, 23, 75)), *(Boxes.one(lo, hi) for lo, hi in cuts))
    np.testing.assert_array_equal(large, small)


@needs_tiles
@pytest.mark.parametrize("kind", KINDS)
def test_k_in_parts(monkeypatch, kind):
    """Three and more of them, the last of one unit and of part of one; little room for sums makes many chunks."""
    monkeypatch.setattr(scheme, "PLANE_PIXELS", 2000)
    monkeypatch.setattr(scheme, "KEPT_BYTES", 1 << 15)
    monkeypatch.setattr(harness, "_COMPILED", {})
    harness.compiled.cache_clear()
    compare(MatMul(True), drawn(kind, (2, 97, 1100), (1100, 90), (90,)))
    compare(conv((3, 2), (1, 2), pads=(1, 1)), drawn(kind, (1, 330, 9, 40), (70, 330, 3, 2)))


@needs_tiles
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1e-42, 2e-39])
@pytest.mark.parametrize("op", [conv((3, 3), pads=(1, 1)), conv((1, 1)), MatMul()], ids=["3x3", "1x1", "matrix"])
def test_a_value_that_parts_do_not_hold(value, op):
    """What one pixel holds changes no output that does not read it; the others are as the definition has them."""
    images = isinstance(op, Conv)
    given = drawn("float32", *(((1, 40, 6, 9), (20, 40, *op.kernel)) if images else ((30, 40), (40, 20))))
    given, before, want = with_outlier(op, given, value, (0, 3, 2, 4) if images else (7, 3))
    got = run_kernel(
        op, given, Boxes.whole(want.shape), HOST_TILES, blocks=[16 if images else 1, 1],
        out_block=16 if images else 1, packed=[False, True], kernel_cls=AmxMaker(),
    )  # fmt: skip
    outside = want == before
    assert np.abs(got[outside] - want[outside]).max() < 1e-6 * np.abs(want[outside]).max()
    got, want = got[~outside], want[~outside].astype(np.float32)
    if abs(value) < 1:
        assert np.abs(got - want).max() < 1e-6 * np.abs(want).max()
    else:
        np.testing.assert_allclose(got, want, rtol=1e-6)


@needs_tiles
@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_a_weight_that_parts_do_not_hold(value):
    x, w = drawn("float32", (30, 40), (40, 20))
    w[3, 5] = value
    want = x.astype(np.float64) @ w.astype(np.float64)
    box = Boxes.whole(want.shape)
    got = run_kernel(MatMul(), [x, w], box, HOST_TILES, packed=[False, True], kernel_cls=AmxMaker())
    np.testing.assert_allclose(got, want.astype(np.float32), rtol=1e-5, atol=1e-5)


@needs_tiles
def test_rows_that_are_computed_again_leave_others_as_they_are():
    """Each row in turn has a value that is not finite: wherever it is among those that are looked at together, and in
    both blocks of columns, the other rows have the bits that they have without it."""
    x, w = drawn("float32", (23, 40), (40, 20))
    box = Boxes.whole((23, 20))

    def product(rows):
        return run_kernel(MatMul(), [rows, w], box, HOST_TILES, packed=[False, True], kernel_cls=AmxMaker())

    plain = product(x)
    for row in range(len(x)):
        changed = x.copy()
        changed[row, 3] = np.inf
        want = plain.copy()
        want[row] = np.copysign(np.inf, w[3])
        np.testing.assert_array_equal(product(changed), want)


@needs_tiles
@pytest.mark.parametrize("scale", [2.0**-40, 2.0**-55, 2.0**-60])
def test_small_numbers_are_as_exact_as_others(scale):
    """Some parts of products of 2**-110 and 2**-120 are below all numbers that tiles sum."""
    x, w = (each * np.float32(scale) for each in drawn("float32", (30, 40), (40, 20)))
    want = x.astype(np.float64) @ w.astype(np.float64)
    box = Boxes.whole(want.shape)
    got = run_kernel(MatMul(), [x, w], box, HOST_TILES, packed=[False, True], kernel_cls=AmxMaker())
    assert np.abs(got - want).max() <= 1e-6 * np.abs(want).max()


@pytest.mark.parametrize("kind", KINDS)
def test_code_is_compiled_anywhere(kind):
    """On processors without tile registers too, for those that have them."""
    op, (x, w) = conv((3, 3), pads=(1, 1)), drawn(kind, (1, 40, 9, 9), (20, 40, 3, 3))
    out = op.infer([TensorType(each.shape, each.dtype) for each in (x, w)])
    ins = dense(TensorType(x.shape, x.dtype), 16), dense(TensorType(w.shape, w.dtype))
    kernel = AmxKernel(op, ins, dense(out, 16), DESCRIBED, (False, True), (0, 0))
    module, _ = emit_sized(kernel, "k")
    assert "tdp" in str(module)
    assert to_object(module, DESCRIBED)
