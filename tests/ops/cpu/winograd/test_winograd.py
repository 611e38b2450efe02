"""Winograd kernels against the NumPy definition, in float64, over shapes that no tile divides."""

import ml_dtypes
import numpy as np
import pytest

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.winograd.axes import PLANAR, POINTS, Axes, Axis, fits
from brickrt.ops.cpu.winograd.kernel import WinogradMaker
from brickrt.ops.cpu.winograd.sizes import ANEW, ONCE, STORED
from brickrt.ops.cpu.winograd.transforms import (
    has_zero,
    input_matrix,
    transformed_tiles,
    weight_matrix,
)
from brickrt.ops.expr import apply, arg, cast, const
from brickrt.ops.operators.conv import Conv
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.harness import AVX2, HOST, check, random_boxes, run_kernel

FAMILIES = [WinogradMaker(2), WinogradMaker(4)]
TOLERANCE = 2e-5


def conv(pads=(1, 1), pads_end=(1, 1), bias=True, epilogue=None, kernel=(3, 3), dilations=None, strides=None):
    ones = (1,) * len(kernel)
    return Conv(kernel, strides or ones, dilations or ones, pads, pads_end, 1, bias, epilogue)


def arrays(n, c, k, *spatial, bias=True, kernel=(3, 3), seed=0):
    rng = np.random.default_rng(seed)
    shapes = [(n, c, *spatial), (k, c, *kernel), (k,)][: 2 + bias]
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def compare(family, op, given, isa=HOST, plain=False, **options):
    """Against the definition, relative to the output's largest value; the input is `plain` or blocked."""
    scale = float(np.abs(evaluate_whole(op, given)).max())
    blocks = [1 if plain else isa.lanes, 1, 1, *[isa.lanes] * 4][: len(given)]
    packed = [False, *[True] * (1 + op.bias), *[False] * 4][: len(given)]
    check(
        op, given, isa, blocks=blocks, out_block=isa.lanes, packed=packed, rtol=0, atol=TOLERANCE * scale,
        kernel_cls=family, **options,
    )  # fmt: skip


@pytest.mark.parametrize("turn", [0, 1])
@pytest.mark.parametrize(
    ("shape", "first"),
    [((1, 16, 16, 8, 8), 0), ((2, 20, 40, 9, 13), 1), ((1, 33, 16, 4, 3), 0), ((1, 16, 50, 1, 2), 1),
     ((1, 64, 64, 17, 18), 0)],
    ids=lambda s: "x".join(map(str, s)) if isinstance(s, tuple) else "",
)  # fmt: skip
def test_shapes(shape, first, turn):
    """Each shape in tiles of both edges, one on the host and one on AVX2."""
    family, isa = FAMILIES[(first + turn) % 2], (HOST, AVX2)[turn]
    compare(family, conv(), arrays(*shape), isa)


@pytest.mark.parametrize(
    ("pads", "family"),
    [(((0, 0), (0, 0)), FAMILIES[0]), (((2, 1), (0, 2)), FAMILIES[1]), (((0, 2), (2, 0)), FAMILIES[0])],
)
def test_pads(pads, family):
    compare(family, conv(*pads, bias=False), arrays(1, 16, 32, 11, 9, bias=False))


@pytest.mark.parametrize("family", FAMILIES)
def test_epilogue_with_a_residual(family):
    """relu(conv + residual), the residual read where each pixel is stored."""
    x, residual = arg(0, "float32"), arg(1, "float32")
    op = conv(epilogue=apply("max", apply("add", x, residual), const(0.0, "float32")))
    given = arrays(1, 16, 32, 10, 7)
    given.append(np.random.default_rng(1).standard_normal((1, 32, 10, 7)).astype(np.float32))
    compare(family, op, given)


def test_bfloat16_is_computed_in_float32():
    """Input and weights are bfloat16, bias and output float32: the result is as near as float32's."""
    half = np.dtype(ml_dtypes.bfloat16)
    op = conv(epilogue=cast(arg(0, half), "float32"))
    x, w, bias = arrays(1, 20, 35, 9, 13)
    compare(FAMILIES[1], op, [x.astype(half), w.astype(half), bias])


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_box_does_not_need_does_not_matter(family):
    """Rows beyond the box's halo hold NaN: a tile that overhangs the box must not read them."""
    x, w, b = arrays(1, 16, 16, 20, 9)
    box = Boxes.one([0, 0, 3, 0], [1, 16, 9, 9])
    want = evaluate_whole(conv(), [x, w, b])
    x[:, :, 10:] = np.nan
    x[:, :, :2] = np.nan
    compare_box = {"boxes": [box], "expected": want}
    scale = float(np.abs(want).max())
    check(
        conv(), [x, w, b], HOST, blocks=[16, 1, 1], out_block=16, packed=[False, True, True], rtol=0,
        atol=TOLERANCE * scale, kernel_cls=family, **compare_box,
    )  # fmt: skip


# shape, kernel, dilations, pads, pads_end, edge of the tiles
KINDS = {
    "3d": ((1, 20, 40, 5, 9, 7), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 4),
    "3d-batch": ((2, 5, 7, 3, 6, 6), (3, 3, 3), (1, 1, 1), (2, 1, 0), (0, 2, 1), 2),
    "3d-one-plane": ((1, 16, 33, 1, 7, 7), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 4),
    "3d-one-voxel": ((1, 17, 16, 1, 1, 1), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 4),
    "3d-deep": ((1, 16, 16, 9, 5, 6), (5, 3, 3), (2, 1, 1), (4, 1, 1), (3, 1, 1), 4),
    "3d-dilated": ((1, 16, 16, 7, 11, 9), (3, 3, 3), (2, 2, 3), (2, 2, 3), (2, 2, 3), 4),
    "3d-1x3x3": ((1, 16, 16, 4, 9, 7), (1, 3, 3), (1, 1, 1), (0, 1, 1), (0, 1, 1), 4),
    "3d-3x1x1": ((1, 16, 16, 9, 4, 5), (3, 1, 1), (1, 1, 1), (1, 0, 0), (1, 0, 0), 6),
    "3d-3x1x3": ((1, 16, 16, 6, 4, 5), (3, 1, 3), (1, 1, 1), (1, 0, 1), (1, 0, 1), 4),
    "2d-d2": ((1, 40, 33, 13, 10), (3, 3), (2, 2), (2, 2), (2, 2), 4),
    "2d-d4": ((2, 16, 16, 14, 9), (3, 3), (4, 4), (4, 4), (4, 4), 4),
    "2d-d3x2": ((1, 16, 16, 8, 9), (3, 3), (3, 2), (1, 2), (3, 0), 2),
    "2d-d5-small": ((1, 16, 16, 3, 2), (3, 3), (5, 5), (5, 5), (5, 5), 2),
    "2d-5x5": ((1, 16, 16, 9, 10), (5, 5), (1, 1), (2, 2), (2, 2), 2),
    "2d-5x5-odd": ((1, 16, 16, 9, 10), (5, 5), (1, 1), (2, 2), (2, 2), 3),
    "2d-4x4": ((1, 16, 20, 9, 10), (4, 4), (1, 1), (2, 1), (1, 2), 4),
    "2d-3x5": ((1, 16, 16, 9, 10), (3, 5), (1, 1), (1, 2), (1, 2), 2),
    "2d-1x3": ((1, 20, 40, 5, 13), (1, 3), (1, 1), (0, 1), (0, 1), 6),
    "2d-3x1": ((2, 1, 3, 13, 5), (3, 1), (1, 1), (1, 0), (1, 0), 4),
    "2d-1x7": ((1, 40, 20, 9, 17), (1, 7), (1, 1), (0, 3), (0, 3), 4),
    "2d-7x1": ((1, 16, 16, 17, 9), (7, 1), (1, 1), (3, 0), (3, 0), 2),
    "2d-1x5": ((1, 16, 16, 9, 11), (1, 5), (1, 1), (0, 2), (0, 2), 4),
    "2d-5x1-d2": ((1, 16, 16, 11, 6), (5, 1), (2, 1), (4, 0), (3, 0), 4),
    "1d-3": ((3, 16, 16, 29), (3,), (1,), (1,), (1,), 6),
    "1d-5": ((1, 30, 16, 19), (5,), (3,), (6,), (6,), 4),
    "1d-7": ((1, 16, 35, 2), (7,), (1,), (3,), (3,), 4),
}  # fmt: skip


def in_turn(kinds, on_avx2):
    """Kinds with an instruction set, and whether a part of the output, for which another kernel is compiled, lies alone
    in memory: by turns it does, lies in the whole tensor, or is left out (None); on AVX2 the first two by turns."""
    alone = {kind: (False, True, None)[k % 3] for k, kind in enumerate(kinds)}
    rows = [*((k, HOST, alone[k]) for k in kinds), *((k, AVX2, i % 2 == 0) for i, k in enumerate(on_avx2))]
    names = {False: "whole", True: "scratch", None: "all"}
    ids = [f"{k} {'host' if isa is HOST else 'avx2'} {names[part]}" for k, isa, part in rows]
    return pytest.mark.parametrize(("kind", "isa", "alone"), rows, ids=ids)


def compare_on_boxes(op, shape, edge, isa, alone, plain=False):
    """In tiles of `edge`: all of the output, and a part of it, in the whole tensor or `alone` in memory, or none."""
    assert fits(op, edge)
    given = arrays(*shape, kernel=op.kernel)
    whole, _, part = random_boxes(types_of(op, given)[1].shape, 1, isa.lanes)
    boxes, parts = [whole] if alone is not False else [whole, part], [part] if alone else []
    compare(WinogradMaker(edge), op, given, isa, plain, boxes=boxes, parts=parts)


ON_AVX2 = ("3d", "2d-d2", "2d-7x1", "1d-5")  # the other code that narrow vectors and few registers give


@in_turn(KINDS, ON_AVX2)
def test_kernels_of_any_dimension(kind, isa, alone):
    shape, kernel, dilations, pads, pads_end, edge = KINDS[kind]
    op = conv(pads, pads_end, kernel=kernel, dilations=dilations)
    compare_on_boxes(op, shape, edge, isa, alone)


RAW4 = WinogradMaker(4, raw=True)
# kind, instruction set, whether a part of the output lies alone in memory, whether weights are transformed once for all
# tiles of a box or anew for each group, their type: any two of the last four, and of dimensions and times, all meet
RAW = [
    ("3d", HOST, False, True, np.float32),
    ("3d", AVX2, True, False, np.float16),
    ("3d-one-voxel", HOST, True, False, np.float32),
    ("3d-deep", HOST, False, False, np.float16),
    ("3d-3x1x1", HOST, True, True, np.float16),
    ("2d-d2", HOST, False, False, np.float32),
    ("2d-5x5-odd", HOST, True, True, np.float32),
    ("2d-1x7", HOST, False, True, np.float16),
    ("2d-1x7", AVX2, False, False, np.float32),
    ("1d-5", HOST, True, False, np.float16),
    ("1d-5", AVX2, False, True, np.float32),
]


@pytest.mark.parametrize(("kind", "isa", "alone", "once", "dtype"), RAW)
def test_weights_transformed_while_the_kernel_runs(monkeypatch, kind, isa, alone, once, dtype):
    """Weights in memory have their own size; there are several blocks of channels."""
    monkeypatch.setattr("brickrt.ops.cpu.winograd.kernel.transforms_once", lambda *_: once)
    (n, channels, *rest), kernel, dilations, pads, pads_end, edge = KINDS[kind]
    shape = (n, channels + 2 * HOST.lanes, *rest)
    op, family = conv(pads, pads_end, kernel=kernel, dilations=dilations), WinogradMaker(edge, raw=True)
    given = arrays(*shape, kernel=op.kernel)
    given[1] = given[1].astype(dtype)
    whole, _, part = random_boxes(types_of(op, given)[1].shape, 1, isa.lanes)
    boxes, parts = ([whole], [part]) if alone else ([whole, part], [])
    compare(family, op, given, isa, boxes=boxes, parts=parts)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_raw_weights_take_their_own_bytes(dtype):
    op, given = conv(), arrays(1, 40, 64, 14, 14)
    given[1] = given[1].astype(dtype)
    ins = tuple(dense(TensorType(a.shape, a.dtype), 16 if i == 0 else 1) for i, a in enumerate(given))
    out = dense(TensorType((1, 64, 14, 14), np.dtype(np.float32)), 16)
    family = WinogradMaker(4, raw=True)
    _, (shape_class,) = family.classify(op, ins, out, Boxes.whole(out.shape), HOST)
    kernel = family(op, ins, out, HOST, (False, True, True), shape_class)
    assert sum(part.nbytes for part in kernel.pack_parts(1, given[1])) == given[1].nbytes + given[1].itemsize


def test_weights_of_few_bytes_are_transformed_once():
    def often(channels):
        given = arrays(1, channels, channels, 14, 14)
        ins = tuple(dense(TensorType(a.shape, a.dtype), 16 if i == 0 else 1) for i, a in enumerate(given))
        out = dense(TensorType((1, channels, 14, 14), np.dtype(np.float32)), 16)
        classes = [m.classify(conv(), ins, out, Boxes.whole(out.shape), HOST)[1] for m in (RAW4, WinogradMaker(4))]
        return [each[0][5] for each in classes]

    assert often(128) == [ONCE, STORED] and often(512) == [ANEW, STORED]


def test_strides_where_nothing_is_transformed():
    """The swept dimension of a 3-D kernel, and the dimension in which a 1×3 kernel reads points."""
    given = arrays(1, 16, 16, 9, 6, 7, kernel=(3, 3, 3))
    compare(WinogradMaker(4), conv((1, 1, 1), (1, 1, 1), kernel=(3, 3, 3), strides=(2, 1, 1)), given)
    given = arrays(1, 16, 16, 9, 11, kernel=(1, 3))
    compare(WinogradMaker(4), conv((0, 1), (0, 1), kernel=(1, 3), strides=(2, 1)), given)


# shape, kernel, strides, pads, pads_end, edge of the tiles
STRIDED = {
    "3x3/2": ((1, 40, 33, 23, 18), (3, 3), (2, 2), (1, 1), (1, 1), 5),
    "3x3/2-no-pads": ((2, 16, 16, 11, 13), (3, 3), (2, 2), (0, 0), (0, 0), 3),
    "3x3/2-small": ((1, 16, 48, 1, 2), (3, 3), (2, 2), (1, 1), (1, 2), 5),
    "3x3/2x1": ((1, 16, 16, 9, 8), (2, 2), (1, 1), (1, 1), (0, 0), 5),
    "7x7/2": ((1, 3, 40, 31, 22), (7, 7), (2, 2), (3, 3), (3, 3), 3),
    "5x5/2": ((1, 20, 16, 17, 14), (5, 5), (2, 2), (2, 2), (1, 2), 4),
    "4x4/2": ((1, 16, 16, 16, 18), (4, 4), (2, 2), (1, 1), (1, 1), 5),
    "11x11/4": ((1, 3, 16, 35, 39), (11, 11), (4, 4), (2, 2), (2, 2), 2),
    "3x3/2-odd": ((1, 40, 33, 23, 18), (3, 3), (2, 2), (1, 1), (1, 1), 4),
    "7x7/2-odd": ((1, 3, 40, 31, 22), (7, 7), (2, 2), (3, 3), (3, 3), 4),
    "5x8/3x4": ((1, 5, 16, 23, 39), (5, 8), (3, 4), (2, 0), (2, 5), 3),
    "1x3/2": ((1, 16, 16, 9, 20), (1, 3), (2, 2), (0, 1), (0, 1), 3),
    "3x3x3/2": ((1, 16, 40, 7, 13, 12), (3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1), 5),
    "7x7x7/2": ((1, 3, 16, 8, 14, 15), (7, 7, 7), (2, 2, 2), (3, 3, 3), (3, 3, 3), 3),
    "3x7x7/1x2x2": ((2, 3, 16, 4, 11, 15), (3, 7, 7), (1, 2, 2), (1, 3, 3), (1, 3, 3), 3),
    "3/2": ((2, 16, 35, 29), (3,), (2,), (1,), (1,), 5),
    "7/3": ((1, 20, 16, 40), (7,), (3,), (3,), (2,), 2),
}  # fmt: skip


@in_turn(STRIDED, ("3x3/2", "7x7x7/2", "11x11/4"))
def test_strides(kind, isa, alone):
    shape, kernel, strides, pads, pads_end, edge = STRIDED[kind]
    op = conv(pads, pads_end, kernel=kernel, strides=strides)
    compare_on_boxes(op, shape, edge, isa, alone)


GATHERED = {
    "7x7/2": ((1, 3, 40, 31, 22), (7, 7), (2, 2), (1, 1), 3),
    "7x7/2-odd": ((1, 3, 40, 31, 22), (7, 7), (2, 2), (1, 1), 4),
    "7x7/2-four-channels": ((2, 4, 16, 19, 30), (7, 7), (2, 2), (1, 1), 3),
    "11x11/4": ((1, 3, 16, 43, 39), (11, 11), (4, 4), (1, 1), 2),
    "7x7x7/2": ((1, 3, 16, 8, 14, 15), (7, 7, 7), (2, 2, 2), (1, 1, 1), 3),
    "3x3x3/2": ((2, 1, 33, 6, 14, 17), (3, 3, 3), (2, 2, 2), (1, 1, 1), 5),
    "3x3": ((1, 3, 33, 9, 14), (3, 3), (1, 1), (1, 1), 4),
    "3x3-dilated": ((1, 2, 16, 13, 11), (3, 3), (1, 1), (2, 2), 4),
    "1x5/2": ((1, 1, 16, 9, 29), (1, 5), (1, 2), (1, 1), 4),
    "7/3": ((1, 4, 16, 40), (7,), (3,), (1,), 2),
}  # fmt: skip


@in_turn(GATHERED, ("7x7/2", "7x7x7/2", "11x11/4"))
def test_few_channels_of_a_plain_input(kind, isa, alone):
    shape, kernel, strides, dilations, edge = GATHERED[kind]
    pads = tuple(k // 2 * d for k, d in zip(kernel, dilations, strict=True))
    op = conv(pads, pads, kernel=kernel, strides=strides, dilations=dilations)
    compare_on_boxes(op, shape, edge, isa, alone, plain=True)


def test_strides_and_dilations_together_are_not_transformed():
    assert not fits(conv(dilations=(2, 2), strides=(2, 2)), 5)
    assert fits(conv(strides=(2, 2)), 5)


@pytest.mark.parametrize(
    ("dilations", "strides", "family"),
    [((1, 2, 1), (1, 1, 1), WinogradMaker(4)), ((1, 1, 1), (1, 2, 2), WinogradMaker(3))],
)
def test_what_a_box_does_not_need_does_not_matter_in_three_dimensions(dilations, strides, family):
    """As above, with boxes cut along every dimension, and a dilation or strides."""
    op = conv((1, 2, 1), (1, 2, 1), kernel=(3, 3, 3), dilations=dilations, strides=strides)
    given = arrays(1, 16, 16, 9, *(14 * s for s in strides[1:]), kernel=(3, 3, 3))
    want = evaluate_whole(op, given)
    box = Boxes.one([0, 0, 3, 5, 2], [1, 16, 6, 10, 9])
    region = op.region(0, box, *types_of(op, given)).slices()
    inside = given[0][region].copy()
    given[0][...] = np.nan
    given[0][region] = inside
    check(
        op, given, HOST, blocks=[16, 1, 1], out_block=16, packed=[False, True, True], rtol=0,
        atol=TOLERANCE * float(np.abs(want).max()), kernel_cls=family, boxes=[box], expected=want,
    )  # fmt: skip


@pytest.mark.parametrize(("m", "r", "rank"), [*((*k, 1) for k in POINTS if k != (1, 1)), *((*k, 2) for k in PLANAR)])
def test_rounding_stays_far_below_the_limit(m, r, rank):
    """A plan may choose what errs by 1e-4 of the largest output; no transform that is offered errs by a tenth of it."""
    kernel, pads = (r,) * rank, (r // 2,) * rank
    op = conv(pads, pads, kernel=kernel, bias=False)
    assert fits(op, m)
    given = arrays(1, 256, 16, *(24,) * rank, bias=False, kernel=kernel)
    want = evaluate_whole(op, [a.astype(np.float64) for a in given])
    box = Boxes.whole(want.shape)
    got = run_kernel(op, given, box, blocks=[16, 1], out_block=16, packed=[False, True], kernel_cls=WinogradMaker(m))
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()


def transformed_weights(w, down, across):
    """[…, taps down, taps across] → [n down * n across, …], in float64."""
    both = np.kron(weight_matrix(down), weight_matrix(across))
    return (both @ w.reshape(-1, both.shape[1]).T.astype(np.float64)).reshape(len(both), *w.shape[:-2])


def types_of(op, given):
    kinds = [TensorType(a.shape, a.dtype) for a in given]
    return kinds, op.infer(kinds)


@pytest.mark.parametrize(("m", "r"), [k for k in POINTS if k != (1, 1)])
def test_transformed_weights_of_a_constant_filter(m, r):
    """A filter of ones has the same transform along both axes."""
    axis = Axis(2, m, r, 1, 1, 0, 9)
    u = transformed_weights(np.ones((1, 1, r, r)), axis, axis).reshape(axis.n, axis.n)
    row = weight_matrix(axis).sum(axis=1)
    np.testing.assert_allclose(u, np.outer(row, row), atol=1e-12)


@pytest.mark.parametrize("channels", [1, 23, 300])
def test_tiles_of_transformed_weights(channels):
    """Tile by tile they are what all transform to at once, with output channels innermost."""
    down, across = Axis(2, 4, 3, 1, 1, 0, 9), Axis(3, 2, 3, 1, 1, 0, 9)
    w = np.random.default_rng(0).standard_normal((24, 2, channels, 3, 3)).astype(np.float32)
    found = np.stack(list(transformed_tiles(w, 8, down, across)), axis=1)  # [n², tile, swept tap, C, width]
    want = transformed_weights(w, down, across).astype(np.float32).reshape(24, 3, 8, 2, channels)
    np.testing.assert_array_equal(found, np.moveaxis(want, 2, -1))


@pytest.mark.parametrize(("m", "r"), [k for k in POINTS if k != (1, 1)])
def test_the_matrices_filter(m, r):
    """Output k of a tile is the sum of d[k + i] w[i], for all inputs and filters."""
    axis = Axis(2, m, r, 1, 1, 0, 9)
    nodes = [*[0.0] * has_zero(axis.n), *(sign * p for p in axis.points for sign in (1, -1))]
    outputs = np.column_stack([*(np.array([a**k for k in range(m)]) for a in nodes), np.eye(m)[-1]])
    found = np.einsum("kp,pi,pj->kij", outputs, weight_matrix(axis), input_matrix(axis))
    want = np.array([[[float(j == k + i) for j in range(axis.n)] for i in range(r)] for k in range(m)])
    np.testing.assert_allclose(found, want, atol=1e-12)


@pytest.mark.parametrize(
    ("m", "r", "stride", "dilation"), [(4, 3, 1, 1), (2, 3, 1, 1), (4, 7, 1, 1), (4, 3, 1, 4), (4, 3, 2, 1)]
)
def test_short_tiles(m, r, stride, dilation):
    """Each phase has no tile more than before, and as many long ones as are needed."""
    axis = Axis(2, m, r, stride, dilation, 0, 99)
    for outputs in range(1, 40):
        each, tiles, long = -(-outputs // dilation), axis.tiles(outputs) // dilation, axis.long(outputs) // dilation
        assert 0 <= long <= tiles and long * m + (tiles - long) * (m - 1) >= (each if stride == 1 else 0)
        assert long == tiles if stride > 1 else long == 0 or long * m + (tiles - long) * (m - 1) == each


def test_register_tiles_that_are_multiplied():
    """14 x 7 outputs: (2 + 2) x (1 + 1) tiles; without short ones 2 register tiles of 4, at 36 points."""
    axes = Axes(Axis(None, 1, 1, 1, 1, 0, 1), *[Axis(d, 4, 3, 1, 1, 1, e) for d, e in ((2, 14), (3, 7))])
    assert axes.register_tiles(1, (14, 7), 1) == 22 * 11
    assert axes.register_tiles(1, (14, 7), 4) == 36 * 2 - 6  # long rows are the first register tile
    assert axes.register_tiles(2, (14, 7), 1) == 2 * 22 * 11
    assert axes.register_tiles(1, (16, 8), 8) == 36


@pytest.mark.parametrize(("outputs", "dilation"), [(7, 1), (14, 1), (14, 2), (28, 4), (5, 1), (3, 1)])
def test_short_tiles_cover_rows(outputs, dilation):
    """Rows of long and short tiles, of two images, down and across; scratch is NaN, and so is what short tiles lack."""
    op = conv((dilation,) * 2, (dilation,) * 2, dilations=(dilation,) * 2)
    compare(WinogradMaker(4), op, arrays(2, 16, 16, outputs, 11))
    compare(WinogradMaker(4), op, arrays(2, 16, 16, 11, outputs))
