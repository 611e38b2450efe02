"""Second factors that are brought into tiles while kernels run, against the definition in float64.

|error| of an output of float32  ≤  ERROR · |its row of the first factor| · |its column of the second|
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.amx import scheme
from brickrt.ops.cpu.amx.kernel import AmxMaker
from brickrt.ops.cpu.amx.variants import brought
from brickrt.ops.cpu.compile import to_object
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.sized_kernel import emit_sized, outline
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu import harness
from tests.support.cpu.harness import random_boxes, run_kernel
from tests.support.cpu.tiles import DESCRIBED, HOST_TILES, needs_tiles

F32, F16 = np.dtype(np.float32), np.dtype(np.float16)
BF16 = np.dtype(ml_dtypes.bfloat16)
ERROR = 3e-7
KINDS = ("float32", "bfloat16", "uint8")
CASES = {
    "heads of attention": ((2, 3, 37, 64), (2, 3, 64, 37)),
    "weights by values": ((2, 3, 37, 37), (2, 3, 37, 64)),
    "one matrix for all": ((3, 20, 33), (33, 50)),
    "images that share": ((2, 3, 20, 40), (2, 1, 40, 17)),
    "more images than first factors": ((1, 20, 40), (3, 40, 17)),
    "one row": ((2, 1, 70), (2, 70, 90)),
    "odd K": ((1, 18, 31), (1, 31, 16)),
    "one element of K": ((1, 18, 1), (1, 1, 5)),
    "whole tiles": ((1, 64, 64), (1, 64, 64)),
}


def drawn(kind, x, w, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "uint8":
        return [rng.integers(0, 256, x, np.uint8), rng.integers(-128, 128, w, np.int8)]
    return [rng.standard_normal(shape).astype(np.float32).astype(kind) for shape in (x, w)]


def half_weights(x, w, *, bias=None, seed=0):
    rng = np.random.default_rng(seed)
    made = [rng.standard_normal(x).astype(np.float32), rng.standard_normal(w).astype(np.float16)]
    return made if bias is None else [*made, rng.standard_normal(bias).astype(np.float32)]


def norms(given):
    """Lengths of the rows of the first factor times those of the columns of the second."""
    a, b = (each.astype(np.float64) ** 2 for each in given[:2])
    return np.sqrt(a.sum(axis=-1, keepdims=True) * b.sum(axis=-2, keepdims=True))


def compare(given, boxes=None, op=None, packed=None, scratch=False):
    """Outputs of some boxes of a matrix product."""
    op = op or MatMul()
    want = evaluate_whole(op, [g.astype(np.float64) if g.dtype.kind not in "iu" else g for g in given])
    for box in boxes or random_boxes(want.shape, 3, 1):
        got = run_kernel(op, given, box, HOST_TILES, packed=packed, scratch=scratch, kernel_cls=AmxMaker())
        part = box.slices()
        if given[0].dtype == np.uint8:
            np.testing.assert_array_equal(got, want[part])
            continue
        error = ERROR if given[0].dtype == F32 else 4e-3  # outputs of bfloat16 are rounded
        assert (np.abs(got - want[part]) <= error * (norms(given) + np.abs(want))[part]).all()


@needs_tiles
@pytest.mark.parametrize(
    ("name", "kind", "scratch"),
    [(name, kind, (i + k) % 2 == 1) for i, name in enumerate(CASES) for k, kind in enumerate(KINDS)],
)
def test_products_of_computed_matrices(name, kind, scratch):
    """Scratch has the columns of the box alone; any two of shapes, kind and scratch meet in all combinations."""
    given = drawn(kind, *CASES[name])
    whole, empty, part, *_ = random_boxes(evaluate_whole(MatMul(), given).shape, 3, 1)
    boxes = [whole, empty, part]  # each shape of scratch is a kernel, and those of float32 take longest to compile
    compare(given, [part] if scratch else boxes[:2] if kind == "float32" else boxes, scratch=scratch)


@needs_tiles
@settings(max_examples=10, deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 70), st.integers(1, 150), st.integers(1, 90))
@example("float32", 35, 77, 41)
@example("bfloat16", 67, 33, 18)
@example("uint8", 18, 131, 83)
def test_any_size(kind, rows, depth, columns):
    compare(drawn(kind, (2, rows, depth), (2, depth, columns), rows))


@needs_tiles
@settings(max_examples=8, deadline=None)
@given(st.integers(1, 70), st.integers(1, 150), st.integers(1, 90), st.booleans())
def test_matrices_of_half_weights(rows, depth, columns, bias):
    given = half_weights((2, rows, depth), (depth, columns), bias=columns if bias else None, seed=rows)
    compare(given, op=MatMul(bias), packed=[False, True, True][: len(given)])


@needs_tiles
@pytest.mark.parametrize(
    ("op", "x", "outputs"),
    [
        (Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1)), (17, 5, 6), 20),
        (Conv((3, 2), (2, 3), (1, 1), (1, 0), (0, 1)), (40, 6, 8), 70),
        (Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0)), (33, 7, 9), 50),
        (Conv((3,), (1,), (2,), (1,), (1,)), (3, 9), 33),
        (Conv((3, 2, 3), (1, 2, 1), (1, 1, 1), (1, 0, 1), (1, 0, 1)), (35, 4, 5, 6), 34),
    ],
    ids=["3x3", "strides", "pointwise", "1d dilated", "3d"],
)  # fmt: skip
def test_convolutions_of_half_weights(op, x, outputs):
    given = half_weights((2, *x), (outputs, x[0], *op.kernel))
    want = evaluate_whole(op, [g.astype(np.float64) for g in given])
    for box in random_boxes(want.shape, 3, 16):
        got = run_kernel(
            op, given, box, HOST_TILES, blocks=[16, 1], out_block=16, packed=[False, True], kernel_cls=AmxMaker()
        )  # fmt: skip
        np.testing.assert_allclose(got, want[box.slices()], rtol=0, atol=1e-6 * np.abs(want).max())


@needs_tiles
def test_transposed_convolutions_of_half_weights():
    """The columns of all taps lie one behind the other."""
    op = ConvTranspose((2, 2), (2, 2), (1, 1), (0, 0), (0, 0), (0, 0))
    given = half_weights((1, 40, 5, 6), (40, 20, 2, 2))
    want = evaluate_whole(op, [g.astype(np.float64) for g in given])
    got = run_kernel(
        op, given, Boxes.whole(want.shape), HOST_TILES, blocks=[16, 1], out_block=16, packed=[False, True],
        kernel_cls=AmxMaker(),
    )  # fmt: skip
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max())


def test_half_weights_stay_as_small():
    """K and columns are whole tiles here."""
    shape = (96, 64, 3, 3)
    ins = dense(TensorType((1, 64, 9, 9), F32), 16), dense(TensorType(shape, F16))
    op = Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    out = dense(TensorType((1, 96, 9, 9), F32), 16)
    kernel = AmxMaker()(op, ins, out, DESCRIBED, (False, True), (0, 0))
    assert kernel.pack(1, np.ones(shape, F16)).nbytes == np.ones(shape, F16).nbytes


@needs_tiles
def test_an_epilogue():
    """Scores are scaled and masked."""
    op = MatMul(epilogue=apply("add", apply("mul", arg(0, F32), const(0.125, F32)), arg(1, F32)))
    given = drawn("float32", (2, 3, 37, 64), (2, 3, 64, 37))
    mask = np.where(np.arange(37) < 30, 0, -1e4).astype(np.float32).reshape(1, 1, 1, 37)
    want = evaluate_whole(op, [*given, mask])
    got = run_kernel(op, [*given, mask], Boxes.whole(want.shape), HOST_TILES, kernel_cls=AmxMaker())
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@needs_tiles
@pytest.mark.parametrize("kind", [*KINDS, "float16"])
def test_bits_do_not_depend_on_boxes_nor_room(monkeypatch, kind):
    """Little room for pixels makes many chunks; columns are cut anywhere."""
    half = kind == "float16"
    given = half_weights((97, 70), (70, 90)) if half else drawn(kind, (97, 70), (70, 90))

    def outputs(*boxes):
        whole = np.zeros((97, 90))
        for box in boxes:
            got = run_kernel(MatMul(), given, box, HOST_TILES, packed=[False, half], kernel_cls=AmxMaker())
            whole[box.slices()] = got.astype(np.float64)
        return whole

    large = outputs(Boxes.whole((97, 90)))
    monkeypatch.setattr(scheme.AmxScheme, "plane_pixels", 40)
    monkeypatch.setattr(scheme, "LEAST_CHUNK_COLUMNS", 8)
    monkeypatch.setattr(harness, "_COMPILED", {})
    harness.compiled.cache_clear()
    cuts = [((0, 0), (50, 90)), ((50, 0), (97, 41)), ((50, 41), (97, 43))]
    np.testing.assert_array_equal(large, outputs(*(Boxes.one(*cut) for cut in cuts), Boxes.one((50, 43), (97, 90))))


@needs_tiles
@pytest.mark.parametrize("kind", [*KINDS, "float16"])
def test_k_in_parts(monkeypatch, kind):
    """Little room for tiles of second factors; the last part is shorter."""
    monkeypatch.setattr(brought, "BROUGHT_BYTES", 1 << 15)
    monkeypatch.setattr(scheme, "KEPT_BYTES", 1 << 15)
    monkeypatch.setattr(harness, "_COMPILED", {})
    harness.compiled.cache_clear()
    half = kind == "float16"
    given = half_weights((2, 97, 1100), (1100, 90)) if half else drawn(kind, (2, 97, 1100), (2, 1100, 90))
    compare(given, packed=[False, half])


@needs_tiles
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 6e4, 1e-42, 2e-39])
@pytest.mark.parametrize("factor", [0, 1])
def test_a_value_that_parts_do_not_hold(half, value, factor):
    """It changes the outputs that read it alone, and these are as the definition has them."""
    given = half_weights((30, 40), (40, 20)) if half else drawn("float32", (30, 40), (40, 20))
    given[factor][7, 3] = value
    with np.errstate(invalid="ignore"):
        want = given[0].astype(np.float64) @ given[1].astype(np.float64)
    got = run_kernel(
        MatMul(), given, Boxes.whole(want.shape), HOST_TILES, packed=[False, half], kernel_cls=AmxMaker()
    )  # fmt: skip
    np.testing.assert_allclose(got, want.astype(np.float32), rtol=1e-5, atol=1e-5)


@needs_tiles
@pytest.mark.parametrize("scale", [2.0**-40, 2.0**-55, 2.0**-60])
def test_small_numbers_are_as_exact_as_others(scale):
    """But for sums of zero, which have lost six products of parts of each element of K."""
    x, w = (each * np.float32(scale) for each in drawn("float32", (30, 40), (40, 20)))
    want = x.astype(np.float64) @ w.astype(np.float64)
    got = run_kernel(MatMul(), [x, w], Boxes.whole(want.shape), HOST_TILES, kernel_cls=AmxMaker())
    error = np.abs(got - want)
    assert error[got != 0].max() <= 1e-6 * np.abs(want).max()
    assert error.max() <= 1e-6 * np.abs(want).max() + 40 * 6 * 2.0**-126


@needs_tiles
def test_a_tiny_sum_does_not_change_others():
    """A column of zeros stays zero beside one of tiny numbers, in one box or in two."""
    x, w = np.full((20, 40), 1e-17, np.float32), np.zeros((40, 20), np.float32)
    w[:, 3], w[:, 5] = 1e-19, 1e-26
    boxes = [Boxes.whole((20, 20))], [Boxes.one((0, 0), (20, 4)), Boxes.one((0, 4), (20, 20))]
    found = []
    for some in boxes:
        parts = [run_kernel(MatMul(), [x, w], box, HOST_TILES, kernel_cls=AmxMaker()) for box in some]
        found.append(np.concatenate(parts, axis=1))
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0][:, 3], 4e-35, rtol=1e-5)


def _kernel(tokens, kind="float32"):
    dtype = np.dtype(kind)
    ins = dense(TensorType((12, tokens, 64), dtype)), dense(TensorType((12, 64, tokens), dtype))
    out = dense(TensorType((12, tokens, tokens), dtype))
    return AmxMaker()(MatMul(), ins, out, DESCRIBED, (False, False), (int(tokens % 16 > 0), 0))


def test_code_is_compiled_anywhere():
    module, _ = emit_sized(_kernel(100), "k")
    assert "tdpbf16ps" in str(module)
    assert to_object(module, DESCRIBED)


@needs_tiles
def test_code_of_some_tokens_is_good_for_others():
    """As of a text model, whose sentences have any length."""
    harness.compiled.cache_clear()
    before = {}
    for tokens in (150, 170, 210):
        compare(drawn("float32", (2, tokens, 64), (2, 64, tokens)), [Boxes.whole((2, tokens, tokens))])
        compare(drawn("float32", (2, tokens, tokens), (2, tokens, 64)), [Boxes.whole((2, tokens, 64))])
        before[tokens] = sum(map(len, harness._COMPILED.values()))
    assert outline(_kernel(150)).text == outline(_kernel(170)).text
    assert before[210] - before[150] <= 2
