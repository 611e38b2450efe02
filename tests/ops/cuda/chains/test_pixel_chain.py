"""Chains of operators on pixels as CUDA kernels, run on the host, against their NumPy definition."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from brickrt.ops.cuda.chains.pixel_chain import pack_weights
from brickrt.ops.expr import apply, arg, cast, const
from brickrt.ops.operators.rowwise import Rowwise, Step
from brickrt.ops.types import Boxes
from tests.support.cuda.cases.chain_cases import F32, ChainDraft, first_half, second_half
from tests.support.cuda.cases.kernel_cases import split
from tests.support.cuda.host_kernels import expected, needs_compiler, run_on_host

pytestmark = needs_compiler
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TOLERANCE = {"float16": 4e-3, "bfloat16": 4e-2, "float32": 2e-3}
TYPES = [np.dtype(np.float16), BFLOAT16, np.dtype(np.float32)]


def layouts(draft: ChainDraft) -> list[str]:
    """Images have channels last, constants lie as they are."""
    return ["plain" if constant else "last" for constant in draft.constant] + ["last"]


def run(draft: ChainDraft, boxes: Boxes | None = None, threads: int = 64) -> np.ndarray:
    precision = "tf32" if draft.dtype == np.float32 else "fp32"
    return run_on_host(draft.op, draft.arrays, layouts(draft), draft.constant, boxes, precision, threads)


def check(draft: ChainDraft, boxes: Boxes | None = None, threads: int = 64) -> np.ndarray:
    result, wanted = run(draft, boxes, threads), expected(draft.op, draft.arrays)
    scale = float(np.abs(wanted.astype(np.float64)).max())
    error = np.abs(result.astype(np.float64) - wanted.astype(np.float64)).max() / scale
    assert error <= TOLERANCE[draft.dtype.name], error
    return result


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("half", [first_half, second_half])
def test_halves_of_blocks(dtype, half):
    """Pixels fill no whole number of warps; any cut of them gives the same bits, and so does any number of threads."""
    draft = half(dtype, (2, 5, 7))
    whole = check(draft)
    cut = run(draft, split(whole.shape, 3), threads=96)
    assert cut.tobytes() == whole.tobytes()


@pytest.mark.parametrize(
    "pixels, channels, columns",
    [((1, 1), 4, 4), ((3, 19), 16, 24), ((2, 2, 3, 5), 20, 12), ((1, 4, 9), 5, 7), ((1, 40, 3), 36, 100)],
    ids=str,
)
def test_signals_images_and_volumes(pixels, channels, columns):
    """Channels that fill no block of 16, and of which no four lie together."""
    draft = first_half(np.float16, pixels, channels, columns)
    whole = check(draft, threads=96)
    assert run(draft, split(whole.shape, 4)).tobytes() == whole.tobytes()


def test_boxes_of_some_channels_and_empty_ones():
    """Nothing outside of a box is written; a box computes all channels, and stores its own."""
    draft = second_half(np.float16, (2, 4, 5), 24)
    whole = run(draft).astype(np.float32)
    for lo, hi in (((0, 0, 0, 0), (2, 3, 4, 5)), ((1, 5, 1, 2), (2, 22, 3, 4)), ((0, 16, 0, 0), (1, 24, 4, 1))):
        only = Boxes.one(lo, hi)
        found = run(draft, only).astype(np.float32)
        inside = only.slices(0)
        assert (found[inside] == whole[inside]).all()
        found[inside] = 77
        assert (found == 77).all()
    assert (run(draft, Boxes.one((0, 3, 0, 0), (2, 3, 4, 5))) == 77).all()


def reduced(combine: str, post=None) -> Rowwise:
    """x less the result of a reduction over its channels."""
    half = np.dtype(np.float16)
    wide = cast(arg(0, half), F32)
    return Rowwise((1,), (Step(combine, wide, post),), cast(apply("sub", wide, arg(1, F32)), half))


@pytest.mark.parametrize("combine", ["sum", "prod", "max", "min"])
def test_reductions_leave_out_what_is_no_channel(combine):
    draft = ChainDraft(np.dtype(np.float16), (1, 3, 7))
    x = draft.given(12)
    post = apply("mul", arg(0, F32), const(0.25, F32)) if combine in ("sum", "prod") else None
    draft.conv(draft._link(reduced(combine, post), [x]), 12, 8)
    check(draft)


def test_not_a_number_stays_in_its_pixel():
    draft = second_half(np.float16, (1, 4, 8))
    clean = run(draft)
    for value in (np.nan, np.inf):
        draft.arrays[0][0, 3, 2, 5] = value
        found, wanted = run(draft), expected(draft.op, draft.arrays)
        hit = np.isnan(wanted.astype(np.float32))
        assert hit[0, :, 2, 5].all() and (np.isnan(found.astype(np.float32)) == hit).all()
        hit[0, :, 2, 5] = True
        assert found[~hit].tobytes() == clean[~hit].tobytes()


def test_elementwise_links_and_operands_of_all_shapes():
    """Scalars, vectors of channels, one value an image, all pixels; before, between and behind products."""
    half = np.dtype(np.float16)
    draft = ChainDraft(half, (2, 3, 5))
    x, y, one = draft.given(8), draft.given(8, F32), draft.factors(1, 2)
    scalar = draft._input((), half, True)
    vector = draft._input((8, 1, 1), half, True)
    sums = cast(apply("add", apply("mul", arg(0, half), arg(1, half)), cast(arg(2, F32), half)), half)
    first = draft.map(sums, x, vector, y)
    product = draft.conv(first, 8, 12)
    scaled = draft.map(apply("max", apply("mul", arg(0, half), arg(1, half)), arg(2, half)), product, one, scalar)
    draft.map(cast(apply("exp", apply("min", cast(arg(0, half), F32), const(2, F32))), F32), draft.conv(scaled, 12, 20))
    check(draft)


@pytest.mark.parametrize("dtype", [np.float16, np.float32], ids=str)
@pytest.mark.parametrize("columns, channels", [(16, 16), (24, 40), (5, 3)])
def test_weights_are_all_there_once(dtype, columns, channels):
    w = np.arange(1, columns * channels + 1, dtype=dtype).reshape(columns, channels)
    packed = pack_weights(w)
    assert packed.size == -(-columns // 16) * -(-channels // 16) * 256
    assert sorted(packed[packed != 0].tolist()) == sorted(w.ravel().tolist())


@pytest.mark.parametrize("before", [False, True])
def test_scales_that_a_link_computes(before):
    """Images of one pixel: factors of channels are a result as well, of a factor in registers or in memory."""
    draft = ChainDraft(np.dtype(np.float16), (5, 1, 1))
    x = draft.given(20)
    scales = draft.conv(draft.given(8), 8, 20)
    draft.conv(draft.norm(x, 20) if before else x, 20, 12, scales=scales)
    check(draft)


def test_one_channel():
    """Infinity times a weight is infinite, also where the other fifteen channels of a block are not there."""
    draft = ChainDraft(np.dtype(np.float16), (1, 3, 5))
    draft.conv(draft.conv(draft.given(1), 1, 8), 8, 4)
    draft.arrays[0][0, 0, 1, 2] = np.inf
    found, wanted = run(draft).astype(np.float32), expected(draft.op, draft.arrays).astype(np.float32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-2)
