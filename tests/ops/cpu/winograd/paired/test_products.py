"""Winograd kernels with paired channels, against the NumPy definition in float64."""

import numpy as np
import pytest

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.winograd.axes import axes_of
from brickrt.ops.cpu.winograd.kernel import WinogradMaker
from brickrt.ops.cpu.winograd.transforms import input_matrix, paired_weights, plane_sizes
from brickrt.ops.types import Boxes, TensorType
from tests.ops.cpu.winograd.test_any_data import SOME, VALUES, check_outlier, places
from tests.ops.cpu.winograd.test_winograd import KINDS, arrays, compare, conv, types_of
from tests.support.cpu.harness import AVX2, HOST, check, random_boxes, run_kernel

PAIRED = WinogradMaker(4, paired=True)


def of_channels(kind, channels):
    """The operator of one of `KINDS` with so many input channels, its arrays, and the edge of its tiles."""
    (n, _, *rest), kernel, dilations, pads, pads_end, edge = KINDS[kind]
    return conv(pads, pads_end, kernel=kernel, dilations=dilations), arrays(n, channels, *rest, kernel=kernel), edge


def run(op, given, family=PAIRED, isa=HOST, box=None):
    box = box or Boxes.whole(types_of(op, given)[1].shape)
    packed = [False, *[True] * (1 + op.bias)]
    blocks = [isa.lanes, 1, 1][: len(given)]
    return run_kernel(op, given, box, isa, blocks=blocks, out_block=isa.lanes, packed=packed, kernel_cls=family)


@pytest.mark.parametrize(("channels", "isa"), [(1, HOST), (48, HOST), (100, HOST), (128, HOST), (24, AVX2), (53, AVX2)])
def test_whole_blocks_of_channels_are_paired_three_at_a_time(channels, isa):
    """And what is left of them, and channels that fill no block, is multiplied as ever."""
    compare(PAIRED, conv(), arrays(2, channels, 40, 9, 13), isa)


@pytest.mark.parametrize("kind", ["3d", "3d-batch", "3d-deep", "3d-3x1x1", "2d-5x5-odd", "2d-7x1", "1d-5"])
def test_kernels_of_any_dimension(kind):
    op, given, edge = of_channels(kind, 50)
    boxes = random_boxes(types_of(op, given)[1].shape, 1, HOST.lanes)
    compare(WinogradMaker(edge, paired=True), op, given, boxes=boxes[:3:2])


def test_bits_do_not_depend_on_the_box():
    """A tile has the same sums whatever stands beside it."""
    op, given = conv(), arrays(1, 48, 32, 24, 40)
    whole = run(op, given)
    part = run(op, given, box=Boxes.one([0, 16, 8, 16], [1, 32, 16, 24]))
    np.testing.assert_array_equal(part, whole[:, 16:32, 8:16, 16:24])


@pytest.mark.parametrize("kind", ["3d", "2d-d3x2", "2d-1x7"])
def test_an_outlier_changes_only_what_reads_it(kind):
    op, given, edge = of_channels(kind, 50)
    assert SOME[kind][-1] is None  # no strides
    for value, place in zip(VALUES, places(given[0].shape, len(VALUES)), strict=True):
        check_outlier(op, given, edge, HOST, value, place, paired=True)


@pytest.mark.parametrize("size", [1e-42, 1e-36, 1e-25, 1e-15, 1e-8, 1e6, 1e15])
def test_inputs_of_any_size_are_as_exact(size):
    """Each tile is as exact as if it were alone, even beside tiles of another size."""
    op, given = conv(bias=False), arrays(1, 96, 16, 16, 22, bias=False)
    given[0][..., 11:] *= np.float32(size)
    want = evaluate_whole(op, [a.astype(np.float64) for a in given])
    got = run(op, given)
    for side in (np.s_[..., :10], np.s_[..., 12:]):
        least = np.finfo(np.float32).smallest_subnormal  # of which sums have no more
        assert np.abs(got - want)[side].max() < 1e-5 * np.abs(want[side]).max() + 1e3 * least


def test_output_channels_of_any_size_are_as_exact():
    op, given = conv(bias=False), arrays(1, 96, 16, 16, 22, bias=False)
    given[1] *= np.geomspace(1e-12, 1e12, 16, dtype=np.float32)[:, None, None, None]
    want = evaluate_whole(op, [a.astype(np.float64) for a in given])
    error = np.abs(run(op, given) - want).max(axis=(0, 2, 3))
    assert (error < 1e-5 * np.abs(want).max(axis=(0, 2, 3))).all()


def test_tiles_and_weights_of_zeros_give_the_bias():
    op, given = conv(), arrays(1, 96, 32, 16, 22)
    given[0][..., 9:] = 0
    given[1][3] = 0
    got = run(op, given)
    np.testing.assert_array_equal(got[..., 12:], np.broadcast_to(given[2][None, :, None, None], got[..., 12:].shape))
    np.testing.assert_array_equal(got[:, 3], np.full_like(got[:, 3], given[2][3]))


@pytest.mark.parametrize("shift", [0.0, 1.0, 10.0])
def test_rounding_is_that_of_other_tiles(shift):
    """Inputs lie around 0, or far from it."""
    op, given = conv(bias=False), arrays(1, 384, 32, 24, 24, bias=False)
    given[0] += np.float32(shift)
    want = evaluate_whole(op, [a.astype(np.float64) for a in given])
    errors = [np.abs(run(op, given, WinogradMaker(4, paired=paired)) - want).max() for paired in (False, True)]
    assert errors[1] < 3 * errors[0] and errors[1] < 5e-6 * np.abs(want).max()


def test_what_a_box_does_not_need_does_not_matter():
    op, given = conv(), arrays(1, 64, 16, 20, 9)
    want = evaluate_whole(op, given)
    given[0][:, :, 10:] = np.nan
    given[0][:, :, :2] = np.nan
    check(
        op, given, HOST, blocks=[16, 1, 1], out_block=16, packed=[False, True, True], rtol=0,
        atol=2e-5 * float(np.abs(want).max()), kernel_cls=PAIRED, boxes=[Boxes.one([0, 0, 3, 0], [1, 16, 9, 9])],
        expected=want,
    )  # fmt: skip


def test_weights_are_packed_apart_from_those_of_other_kernels():
    """Also where both have one block of output channels in a register tile."""
    given = arrays(1, 48, 16, 9, 9)
    ins = tuple(dense(TensorType(a.shape, a.dtype), 16 if i == 0 else 1) for i, a in enumerate(given))
    out = dense(TensorType((1, 16, 9, 9), np.dtype(np.float32)), 16)
    kernels = []
    for family in (PAIRED, WinogradMaker(4)):
        _, (shape_class,) = family.classify(conv(), ins, out, Boxes.whole(out.shape), HOST)
        kernels.append(family(conv(), ins, out, HOST, (False, True, True), shape_class))
    assert kernels[0].ob == kernels[1].ob == 1 and kernels[0].packing(1) != kernels[1].packing(1)


def test_sizes_of_planes():
    """Those of F(4×4, 3×3) from points ±√½ and ±√2, 0 and ∞, against random tiles of length 1."""
    axes = axes_of(conv(), (8, 8), 4)
    both = np.kron(input_matrix(axes.down), input_matrix(axes.across))
    tiles = np.random.default_rng(0).standard_normal((36, 1000)) / 6
    ratio = plane_sizes(axes) / (2 * np.sqrt(((both @ tiles) ** 2).mean(axis=1)))
    assert (ratio > 0.7).all() and (ratio < 1.5).all()


def test_scaled_weights_are_the_weights():
    """Powers of two lose nothing, and bring the largest of a plane's output channel to its size or up to twice that."""
    u = np.random.default_rng(0).standard_normal((4, 2, 3, 1, 100, 16)).astype(np.float32)
    u *= np.geomspace(1e-20, 1e20, 16, dtype=np.float32)
    sizes = np.array([1, 2, 0.5, 8], np.float32)
    scaled, back, pairs = (np.full(shape, np.nan, np.float32) for shape in (u.shape, (4, 2, 16), (4, 2, 3, 16)))
    paired_weights((np.ascontiguousarray(u[:, k]) for k in range(2)), (scaled, back, pairs), 96, sizes)
    apart = scaled[:, :, :, 0, :96].reshape(4, 2, 3, 2, 16, 3, 16).swapaxes(-3, -2)
    order = np.concatenate([apart.reshape(4, 2, 3, 96, 16), scaled[:, :, :, 0, 96:]], axis=3)
    np.testing.assert_array_equal(order * back[:, :, None, None], u[:, :, :, 0])
    largest = np.abs(scaled).max(axis=(2, 3, 4))
    assert (largest >= sizes[:, None, None]).all() and (largest < 2 * sizes[:, None, None]).all()
    signs = np.where(np.arange(16) % 2, -1, 1)[:, None]
    products = (apart[..., 1, :, :].astype(np.float64) * apart[..., 2, :, :] * signs).sum(axis=(3, 4))
    np.testing.assert_allclose(pairs, products, rtol=1e-6, atol=1e-6)
