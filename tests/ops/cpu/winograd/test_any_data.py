"""Winograd kernels on data that minimal filtering must not mix: what an output does not read does not change it.

x x x x x x      an outlier at any pixel of a tile's inputs; the outputs that read it are as the definition has them,
x x x o x x  →   the others err by less than 1e-5 of the largest of them
"""

import numpy as np
import pytest

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.winograd.axes import POINTS
from brickrt.ops.cpu.winograd.kernel import WinogradMaker
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.types import Boxes
from tests.ops.cpu.winograd.test_winograd import GATHERED, KINDS, STRIDED, arrays, conv
from tests.support.cpu.harness import AVX2, HOST, check, run_kernel
from tests.support.cpu.outliers import with_outlier

VALUES = (np.nan, np.inf, -np.inf, 1e4, -1e8, 3e38)
SOME = {
    **{name: (*KINDS[name], None) for name in ("3d", "3d-dilated", "3d-3x1x3", "2d-d3x2", "2d-5x5", "2d-1x7", "1d-5")},
    **{
        name: (s, k, None, p, e, m, t)
        for name, (s, k, t, p, e, m) in STRIDED.items()
        if name in ("3x3/2", "5x8/3x4", "7/3")
    },
}


def run(op, given, edge, isa, plain=False, box=None, **how):
    blocks = [1 if plain else isa.lanes, *[1] * (len(given) - 1)]
    blocks[1 + op.main - 1 :] = [isa.lanes] * (len(given) - op.main)
    packed = [False, *[True] * (op.main - 1), *[False] * (len(given) - op.main)]
    box = box or Boxes.whole(evaluate_whole(op, given).shape)
    return run_kernel(
        op, given, box, isa, blocks=blocks, out_block=isa.lanes, packed=packed, kernel_cls=WinogradMaker(edge, **how)
    )


def places(shape, count=5, seed=3):
    """The first pixel, the last, and some between."""
    rng = np.random.default_rng(seed)
    yield (0, 0, *[0] * (len(shape) - 2))
    yield tuple(extent - 1 for extent in shape)
    for _ in range(count - 2):
        yield tuple(int(rng.integers(extent)) for extent in shape)


def check_outlier(op, given, edge, isa, value, place, plain=False, **how):
    """`value` at one place of the input; `how` is what `WinogradMaker` takes."""
    given, before, want = with_outlier(op, given, value, place)
    got = run(op, given, edge, isa, plain, **how)
    outside = (want == before).all(axis=1, keepdims=True) & np.ones_like(want, bool)
    largest = np.abs(before[outside]).max(initial=0)
    assert np.abs(got[outside] - want[outside]).max(initial=0) < 1e-5 * largest
    inside = ~outside
    if np.isfinite(value):
        scale = np.abs(want[inside]).max(initial=1)
        finite = np.isfinite(got[inside])
        assert np.abs(got[inside] - want[inside])[finite].max(initial=0) < 1e-5 * scale
        assert abs(value) > 1e38 or finite.all()
    else:
        np.testing.assert_array_equal(got[inside], want[inside].astype(np.float32))


@pytest.mark.parametrize("kind", SOME)
def test_an_outlier_changes_only_what_reads_it(kind):
    shape, kernel, dilations, pads, pads_end, edge, strides = SOME[kind]
    op = conv(pads, pads_end, kernel=kernel, dilations=dilations, strides=strides)
    given = arrays(*shape, kernel=kernel)
    for value, place in zip(VALUES, places(given[0].shape, len(VALUES)), strict=True):
        check_outlier(op, given, edge, HOST, value, place)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("kind", ["3d", "2d-1x7"])
def test_an_outlier_where_weights_are_as_they_are(kind, dtype, monkeypatch):
    """What is computed again reads the same weights as what transforms them."""
    shape, kernel, dilations, pads, pads_end, edge = KINDS[kind]
    given = arrays(*shape, kernel=kernel)
    given[1] = given[1].astype(dtype)
    monkeypatch.setattr("brickrt.ops.cpu.winograd.kernel.transforms_once", lambda *_: dtype == np.float16)
    op = conv(pads, pads_end, kernel=kernel, dilations=dilations)
    for value, place in zip(VALUES, places(given[0].shape, len(VALUES)), strict=True):
        check_outlier(op, given, edge, HOST, value, place, raw=True)


@pytest.mark.parametrize("kind", ["7x7/2", "3x3x3/2", "3x3-dilated"])
def test_an_outlier_in_a_plain_input(kind):
    shape, kernel, strides, dilations, edge = GATHERED[kind]
    pads = tuple(k // 2 * d for k, d in zip(kernel, dilations, strict=True))
    op = conv(pads, pads, kernel=kernel, strides=strides, dilations=dilations)
    given = arrays(*shape, kernel=kernel)
    for value, place in zip(VALUES, places(given[0].shape, len(VALUES)), strict=True):
        check_outlier(op, given, edge, HOST, value, place, plain=True)


@pytest.mark.parametrize(("value", "isa"), [(value, (HOST, AVX2)[k % 2]) for k, value in enumerate(VALUES)])
def test_an_outlier_at_every_pixel_of_a_tile(value, isa):
    """On either instruction set there are values that are finite, and others."""
    op, given = conv(), arrays(1, 20, 16, 9, 10)
    for y, x in np.ndindex(7, 7):
        check_outlier(op, given, 4, isa, value, (0, (3 * y + x) % 20, y + 1, x + 2))


@pytest.mark.parametrize(("m", "r"), [k for k in POINTS if k != (1, 1)])
@pytest.mark.parametrize("value", [30.0, 100.0, 1e3, 1e6])
def test_outliers_of_every_size(m, r, value):
    op = conv((r // 2,), (r // 2,), kernel=(r,), bias=False)
    given = arrays(1, 32, 16, 40, bias=False, kernel=(r,))
    for place in range(7, 7 + m + r):
        check_outlier(op, given, m, HOST, value, (0, 5, place))


def test_what_reads_zeros_alone_is_the_bias():
    """One bright pixel on black, with a residual: exact everywhere, and the residual is added once."""
    x, residual = arg(0, "float32"), arg(1, "float32")
    op = conv(epilogue=apply("max", apply("add", x, residual), const(0.0, "float32")))
    given = [np.zeros((1, 16, 12, 14), np.float32), *arrays(1, 16, 20, 12, 14)[1:]]
    given[0][0, 3, 5, 6] = 1e20
    given.append(np.abs(np.random.default_rng(1).standard_normal((1, 20, 12, 14))).astype(np.float32))
    want = evaluate_whole(op, given)
    got = run(op, given, 4, HOST)
    reads = np.zeros((12, 14), bool)
    reads[4:7, 5:8] = True
    np.testing.assert_array_equal(got[..., ~reads], want[..., ~reads])
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_ranges_of_a_photograph_at_night():
    """Half of the image 1e-5 of the other: each half as exact as if it were alone."""
    op, given = conv(bias=False), arrays(1, 24, 16, 16, 22, bias=False)
    given[0][..., 11:] *= 1e-5
    want = evaluate_whole(op, [a.astype(np.float64) for a in given])
    got = run(op, given, 4, HOST)
    dark = np.s_[..., 12:]
    assert np.abs(got - want)[dark].max() < 1e-5 * np.abs(want[dark]).max()


def test_an_outlier_beyond_the_box_does_not_matter():
    """It is no part of what the box reads: the same bits come out."""
    op, given = conv(), arrays(1, 16, 16, 20, 9)
    box = Boxes.one([0, 0, 3, 0], [1, 16, 9, 9])
    want = run(op, given, 4, HOST, box=box)
    given[0][:, :, 10:] = np.inf
    np.testing.assert_array_equal(run(op, given, 4, HOST, box=box), want)


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e30])
def test_weights_that_must_not_be_transformed(value, raw):
    op, given = conv(), arrays(1, 16, 20, 9, 10)
    given[1][3, 5, 0, 2] = value
    given[0][0, 5, 4, 4] = 0
    wide = [a.astype(np.float64) for a in given]
    with np.errstate(invalid="ignore", over="ignore"):
        want = evaluate_whole(op, wide)
        got = run(op, given, 4, HOST, raw=raw)
    np.testing.assert_allclose(np.delete(got, 3, 1), np.delete(want, 3, 1), rtol=0, atol=1e-4)
    np.testing.assert_array_equal(np.isnan(got[:, 3, 1:, :-1]), np.isnan(want[:, 3, 1:, :-1]))
    np.testing.assert_array_equal(np.isinf(got[:, 3, 1:, :-1]), np.isinf(want[:, 3, 1:, :-1]))


@pytest.mark.parametrize("kind", ["7x7/2-odd", "3x3x3/2", "7/3"])
def test_outliers_all_over_a_plain_input(kind):
    """Also where a residue of the strides has a tap less than others."""
    shape, kernel, strides, dilations, edge = GATHERED[kind]
    pads = tuple(k // 2 * d for k, d in zip(kernel, dilations, strict=True))
    op = conv(pads, pads, kernel=kernel, strides=strides, dilations=dilations)
    given = arrays(*shape, kernel=kernel)
    for place in places(given[0].shape, 12, seed=5):
        check_outlier(op, given, edge, HOST, np.nan, place, plain=True)


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
@pytest.mark.parametrize("isa", [HOST, AVX2], ids=["host", "avx2"])
def test_nothing_is_read_beyond_a_bricks_scratch(isa, strides):
    """Tiles that reach over a box whose input is stored alone, as in padded bricks, and must be computed directly."""
    op, given = conv(strides=strides), arrays(1, 16, 16, 24, 40)
    given[0][0, 3, 9::4, 2::4] = np.nan
    with np.errstate(invalid="ignore"):
        want = evaluate_whole(op, given)
    boxes = [Boxes.one([0, 0, 2, lo], [1, 16, 10, hi]) for lo, hi in ((0, 5), (8, 17), (3, 9), (11, 20))]
    for box in boxes:
        check(
            op, given, isa, blocks=[isa.lanes, 1, 1], out_block=isa.lanes, packed=[False, True, True], rtol=0,
            atol=2e-5 * np.nanmax(np.abs(want)), kernel_cls=WinogradMaker(5 if strides == (2, 2) else 4), boxes=[box],
            expected=want,
        )  # fmt: skip
