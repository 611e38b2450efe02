"""Winograd kernels whose products tile registers add, against the NumPy definition in float64."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.compile import to_object
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.sized_kernel import emit_sized
from brickrt.ops.cpu.winograd.tiled.kernel import TiledWinogradMaker
from brickrt.ops.cpu.winograd.tiled.scheme import channel_sizes
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.types import Boxes, TensorType
from tests.ops.cpu.winograd.test_any_data import VALUES, places
from tests.ops.cpu.winograd.test_winograd import KINDS, arrays, compare, conv, types_of
from tests.support.cpu.harness import random_boxes, run_kernel
from tests.support.cpu.outliers import with_outlier
from tests.support.cpu.tiles import DESCRIBED, HOST_TILES, needs_tiles

TILED = TiledWinogradMaker(4)
ERROR = 1e-5  # of the largest output


def run(op, given, family=TILED, box=None):
    box = box or Boxes.whole(types_of(op, given)[1].shape)
    packed = [False, *[True] * (1 + op.bias)]
    return run_kernel(
        op, given, box, HOST_TILES, blocks=[16, 1, 1][: len(given)], out_block=16, packed=packed, kernel_cls=family
    )


def wanted(op, given):
    return evaluate_whole(op, [a.astype(np.float64) for a in given])


@needs_tiles
@pytest.mark.parametrize("edge", [2, 4, 6])
@pytest.mark.parametrize("shape", [(2, 20, 40, 9, 13), (1, 33, 16, 4, 3), (1, 64, 50, 17, 18), (1, 100, 96, 30, 31)])
def test_shapes(shape, edge):
    """Units and blocks that channels fill or do not; one register tile of tiles, or several."""
    compare(TiledWinogradMaker(edge), conv(), arrays(*shape), HOST_TILES)


@needs_tiles
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_of_any_dimension(kind):
    shape, kernel, dilations, pads, pads_end, edge = KINDS[kind]
    op, given = conv(pads, pads_end, kernel=kernel, dilations=dilations), arrays(*shape, kernel=kernel)
    boxes = random_boxes(types_of(op, given)[1].shape, 1, 16)
    compare(TiledWinogradMaker(edge), op, given, HOST_TILES, boxes=boxes[:3:2])


@needs_tiles
def test_epilogue_with_a_residual():
    x, residual = arg(0, "float32"), arg(1, "float32")
    op = conv(epilogue=apply("max", apply("add", x, residual), const(0.0, "float32")))
    given = arrays(1, 48, 32, 10, 7)
    given.append(np.random.default_rng(1).standard_normal((1, 32, 10, 7)).astype(np.float32))
    compare(TILED, op, given, HOST_TILES)


@needs_tiles
def test_bits_do_not_depend_on_the_box():
    """A tile has the same sums whatever stands beside it."""
    op, given = conv(), arrays(1, 48, 64, 24, 40)
    whole = run(op, given)
    part = run(op, given, box=Boxes.one([0, 32, 8, 16], [1, 64, 16, 24]))
    np.testing.assert_array_equal(part, whole[:, 32:64, 8:16, 16:24])


@needs_tiles
def test_rounding_is_no_more_than_that_of_vectors():
    op, given = conv(bias=False), arrays(1, 384, 32, 24, 24, bias=False)
    want = wanted(op, given)
    assert np.abs(run(op, given) - want).max() < 3e-6 * np.abs(want).max()


@needs_tiles
@pytest.mark.parametrize("kind", ["3d", "2d-d3x2", "2d-1x7"])
def test_an_outlier_changes_only_what_reads_it(kind):
    (n, _, *rest), kernel, dilations, pads, pads_end, edge = KINDS[kind]
    op, arrays_of = conv(pads, pads_end, kernel=kernel, dilations=dilations), arrays(n, 50, *rest, kernel=kernel)
    for value, place in zip(VALUES, places(arrays_of[0].shape, len(VALUES)), strict=True):
        given, before, want = with_outlier(op, arrays_of, value, place)
        got = run(op, given, TiledWinogradMaker(edge))
        outside = (want == before).all(axis=1, keepdims=True) & np.ones_like(want, bool)
        assert np.abs(got[outside] - want[outside]).max(initial=0) < ERROR * np.abs(before[outside]).max(initial=0)
        if not np.isfinite(value):
            np.testing.assert_array_equal(got[~outside], want[~outside].astype(np.float32))
        elif abs(value) < 1e38:
            assert np.abs(got - want)[~outside].max() < ERROR * np.abs(want[~outside]).max()


@needs_tiles
@pytest.mark.parametrize("size", [1e-42, 1e-36, 1e-30, 1e-25, 1e-20, 1e-15, 1e-8, 1e6, 1e15])
def test_inputs_of_any_size_are_as_exact(size):
    """Tile registers count subnormal parts as zero; each tile is as exact as if it were alone."""
    op, given = conv(bias=False), arrays(1, 96, 16, 16, 22, bias=False)
    given[0][..., 11:] *= np.float32(size)
    want, got = wanted(op, given), run(op, given)
    for side in (np.s_[..., :10], np.s_[..., 12:]):
        least = np.finfo(np.float32).smallest_subnormal  # of which sums have no more
        assert np.abs(got - want)[side].max() < ERROR * np.abs(want[side]).max() + 1e3 * least


@needs_tiles
@pytest.mark.parametrize("least", [1e-30, 1e-12])
def test_output_channels_of_any_size_are_as_exact(least):
    op, given = conv(bias=False), arrays(1, 96, 32, 16, 22, bias=False)
    given[1] *= np.geomspace(least, 1e12, 32, dtype=np.float32)[:, None, None, None]
    want = wanted(op, given)
    error = np.abs(run(op, given) - want).max(axis=(0, 2, 3))
    assert (error < ERROR * np.abs(want).max(axis=(0, 2, 3))).all()


@needs_tiles
def test_tiles_and_weights_of_zeros_give_the_bias():
    op, given = conv(), arrays(1, 96, 32, 16, 22)
    given[0][..., 9:] = 0
    given[1][3] = 0
    got = run(op, given)
    np.testing.assert_array_equal(got[..., 12:], np.broadcast_to(given[2][None, :, None, None], got[..., 12:].shape))
    np.testing.assert_array_equal(got[:, 3], np.full_like(got[:, 3], given[2][3]))


@needs_tiles
@pytest.mark.parametrize("value", [np.inf, np.nan, 1e30])
def test_weights_that_must_not_be_transformed(value):
    op, given = conv(), arrays(1, 40, 32, 9, 9)
    given[1][5, 3, 1, 1] = value
    want, got = wanted(op, given), run(op, given)
    assert np.isfinite(got[:, :5]).all() and np.allclose(got[:, 6:], want[:, 6:], rtol=0, atol=1e-4)
    np.testing.assert_allclose(got[:, 5], want[:, 5], rtol=1e-4)


@needs_tiles
def test_lanes_beyond_the_last_channel_do_not_matter():
    """They hold NaN in memory (`harness.stored`)."""
    for channels in (5, 17, 37, 50):
        compare(TILED, conv(), arrays(1, channels, 20, 9, 8), HOST_TILES)


def test_code_for_a_processor_that_has_tiles():
    """Compiles on any machine."""
    given = arrays(1, 48, 48, 9, 9)
    ins = tuple(dense(TensorType(a.shape, a.dtype), 16 if i == 0 else 1) for i, a in enumerate(given))
    out = dense(TensorType((1, 48, 9, 9), np.dtype(np.float32)), 16)
    _, (shape_class,) = TILED.classify(conv(), ins, out, Boxes.whole(out.shape), DESCRIBED)
    kernel = TILED(conv(), ins, out, DESCRIBED, (False, True, True), shape_class)
    module, _ = emit_sized(kernel, "k")
    assert "tdpbf16ps" in str(module)
    assert to_object(module, DESCRIBED)


def test_sizes_of_channels():
    w = np.zeros((6, 2, 1, 1, 1), np.float32)
    w[:, 1, 0, 0, 0] = [0, -3, 1e-45, 4, np.inf, 0.7]
    np.testing.assert_array_equal(channel_sizes(w), np.float32([1, 2, np.finfo(np.float32).tiny, 4, 1, 0.5]))
