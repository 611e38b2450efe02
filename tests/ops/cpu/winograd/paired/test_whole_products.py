"""Winograd kernels with paired channels that transform weights while they run, against NumPy in float64."""

import numpy as np
import pytest

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.winograd.kernel import WinogradMaker
from brickrt.ops.types import Boxes, TensorType
from tests.ops.cpu.winograd.paired.test_products import PAIRED, of_channels, run
from tests.ops.cpu.winograd.test_any_data import VALUES, check_outlier, places
from tests.ops.cpu.winograd.test_winograd import arrays, compare, conv, types_of
from tests.support.cpu.harness import AVX2, HOST, random_boxes

WHOLE = WinogradMaker(4, raw=True, paired=True)
HALF = np.float16


@pytest.mark.parametrize(("channels", "isa"), [(117, HOST), (53, AVX2)])
def test_whole_blocks_of_channels_are_paired_three_at_a_time(channels, isa):
    """And what is left of them, and channels that fill no block, is multiplied as ever."""
    given = arrays(2, channels, 40, 9, 13)
    given[1] = given[1].astype(HALF)
    compare(WHOLE, conv(), given, isa)


@pytest.mark.parametrize("kind", ["3d", "1d-5"])
def test_kernels_of_any_dimension(kind):
    op, given, edge = of_channels(kind, 50)
    boxes = random_boxes(types_of(op, given)[1].shape, 1, HOST.lanes)
    compare(WinogradMaker(edge, raw=True, paired=True), op, given, boxes=boxes[:3:2])


def test_sums_are_those_of_stored_weights():
    """But for the last bits of weights, which are transformed in float32."""
    op, given = conv(bias=False), arrays(1, 384, 32, 24, 24, bias=False)
    given[1] = given[1].astype(HALF)
    want = evaluate_whole(op, [a.astype(np.float64) for a in given])
    errors = [np.abs(run(op, given, WHOLE) - want).max()]
    given[1] = given[1].astype(np.float32)
    errors.append(np.abs(run(op, given, PAIRED) - want).max())
    assert errors[0] < 1.5 * errors[1] and errors[0] < 5e-6 * np.abs(want).max()


def test_bits_do_not_depend_on_the_box():
    op, given = conv(), arrays(1, 48, 32, 24, 40)
    given[1] = given[1].astype(HALF)
    part = run(op, given, WHOLE, box=Boxes.one([0, 16, 8, 16], [1, 32, 16, 24]))
    np.testing.assert_array_equal(part, run(op, given, WHOLE)[:, 16:32, 8:16, 16:24])


def test_output_channels_of_any_size_are_as_exact():
    op, given = conv(bias=False), arrays(1, 96, 16, 16, 22, bias=False)
    given[1] *= np.geomspace(1e-25, 1e15, 16, dtype=np.float32)[:, None, None, None]
    want = evaluate_whole(op, [a.astype(np.float64) for a in given])
    error = np.abs(run(op, given, WHOLE) - want).max(axis=(0, 2, 3))
    assert (error < 1e-5 * np.abs(want).max(axis=(0, 2, 3))).all()


def test_tiles_and_weights_of_zeros_give_the_bias():
    op, given = conv(), arrays(1, 96, 32, 16, 22)
    given[0][..., 9:] = 0
    given[1][3] = 0
    got = run(op, given, WHOLE)
    np.testing.assert_array_equal(got[..., 12:], np.broadcast_to(given[2][None, :, None, None], got[..., 12:].shape))
    np.testing.assert_array_equal(got[:, 3], np.full_like(got[:, 3], given[2][3]))


def test_an_outlier_changes_only_what_reads_it():
    op, given, edge = of_channels("3d", 50)
    given[1] = given[1].astype(HALF)
    for value, place in zip(VALUES[::3], places(given[0].shape, 2), strict=True):
        check_outlier(op, given, edge, HOST, value, place, raw=True, paired=True)


def test_packed_weights_are_those_of_the_model_and_exponents():
    given = arrays(1, 96, 40, 14, 14)
    ins = tuple(dense(TensorType(a.shape, a.dtype), 16 if i == 0 else 1) for i, a in enumerate(given))
    ins = (ins[0], dense(TensorType(given[1].shape, np.dtype(HALF)), 1), ins[2])
    out = dense(TensorType((1, 40, 14, 14), np.dtype(np.float32)), 16)
    _, (shape_class,) = WHOLE.classify(conv(), ins, out, Boxes.whole(out.shape), HOST)
    kernel = WHOLE(conv(), ins, out, HOST, (False, True, True), shape_class)
    parts = kernel.pack_parts(1, given[1].astype(HALF))
    assert {part.dtype for part in parts} == {np.dtype(HALF)}
    elements = 48 * 96 * 9 + 1 + 36 * 48
    assert sum(part.size for part in parts) == kernel.packed_elements(1) == elements
