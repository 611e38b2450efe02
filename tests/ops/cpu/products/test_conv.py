"""Direct convolution kernels, in 1 to 3 dimensions, against the definition in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.kernel import choose_kernel
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.products import row_tiles
from brickrt.ops.cpu.products.conv import ConvKernel
from brickrt.ops.cpu.products.conv_scheme import ANY_ROW
from brickrt.ops.cpu.sized_kernel import emit_sized
from brickrt.ops.operators.conv import Conv
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.conv_cases import ConvCase, check_bricks, check_conv, conv
from tests.support.cpu.harness import AVX2, HOST, ZEN4, check, run_kernel

ISAS = [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")]


def in_turn(names, first=0):
    """Parametrizes a test by `name` and `isa`: each case for one kind of processor, in turns."""
    rows = [
        pytest.param(name, *ISAS[k % 2].values, id=f"{name}-{ISAS[k % 2].id}") for k, name in enumerate(names, first)
    ]
    return pytest.mark.parametrize(("name", "isa"), rows)


CASES = {
    "1d": ConvCase(conv((3,), pads=(1,)), (5, 7), 21),
    "1d strided, dilated": ConvCase(conv((3,), (2,), (3,), (4,), (1,)), (19, 10), 3, n=2),
    "1d of one pixel": ConvCase(conv((1,)), (1, 1), 1),
    "2d": ConvCase(conv((3, 3), pads=(1, 1)), (17, 4, 5), 20),
    "2d uneven pads": ConvCase(conv((2, 3), pads=(0, 2), end=(2, 1)), (5, 3, 4), 18, n=2),
    "2d strides": ConvCase(conv((3, 2), (2, 3), (1, 1), (1, 0), (0, 1)), (20, 6, 8), 7),
    "2d dilated": ConvCase(conv((3, 2), (1, 1), (2, 3), (2, 1)), (6, 5, 5), 18),
    "2d kernel larger than the image": ConvCase(conv((5, 4), pads=(3, 3)), (3, 2, 3), 17),
    "2d dilated beyond the image": ConvCase(conv((3, 3), (1, 1), (4, 4), (4, 4)), (4, 3, 3), 5),
    "2d pads beyond the kernel": ConvCase(conv((2, 2), pads=(3, 3)), (3, 2, 2), 4),
    "2d bias": ConvCase(conv((2, 2), bias=True), (9, 4, 4), 19),
    "2d few channels": ConvCase(conv((3, 3), (2, 2), pads=(1, 1), bias=True), (3, 6, 7), 20, plain=True),
    "2d one channel": ConvCase(conv((3, 2), pads=(1, 1)), (1, 3, 4), 3, n=2, plain=True),
    "pointwise": ConvCase(conv((1, 1), bias=True), (19, 4, 5), 35, n=2),
    "pointwise strided": ConvCase(conv((1, 1), (2, 2)), (18, 5, 4), 17),
    "pointwise padded": ConvCase(conv((1, 1), pads=(1, 1)), (4, 2, 3), 5),
    "3d": ConvCase(conv((3, 3, 3), pads=(1, 1, 1)), (3, 3, 2, 4), 17),
    "3d strides": ConvCase(conv((2, 3, 2), (2, 1, 3), (1, 2, 1), (1, 1, 0), (0, 2, 1)), (17, 3, 4, 5), 4),
    "3d pointwise": ConvCase(conv((1, 1, 1)), (5, 2, 3, 4), 18),
    "3d few channels": ConvCase(conv((1, 2, 2), pads=(0, 1, 1)), (2, 2, 3, 3), 16, plain=True),
}


@in_turn(CASES)
def test_boxes(name, isa):
    check_conv(CASES[name], isa)


@pytest.mark.parametrize("name", ["1d", "2d uneven pads", "2d bias", "2d few channels", "pointwise"])
def test_weights_that_are_no_constants(name):
    check_conv(CASES[name], HOST, packed=False, scratch=False)


PACKED = {
    "strided, dilated": ConvCase(conv((3, 2), (2, 1), (1, 2), (1, 1), bias=True), (21, 9, 11), 37, n=2),
    "chunks of channels": ConvCase(conv((3, 3), pads=(1, 1)), (1100, 3, 9), 20),
    "two groups": ConvCase(conv((2, 3), pads=(0, 1), groups=2), (70, 4, 8), 66),
    "volume": ConvCase(conv((3, 3, 3), pads=(1, 1, 1), bias=True), (9, 3, 4, 6), 18),
    "pointwise": ConvCase(conv((1, 1), bias=True), (40, 7, 9), 50, n=2),
    "walked taps": ConvCase(conv((1, 100), pads=(0, 50)), (5, 2, 80), 17),
}


# AVX-512 has tiles so wide that the last case's taps are not walked
@pytest.mark.parametrize(
    ("name", "isa"), [*((name, AVX2) for name in PACKED), *((name, HOST) for name in list(PACKED)[:-1])]
)
def test_computed_weights_are_packed_for_many_pixels(name, isa):
    check_conv(PACKED[name], isa, packed=False, scratch=False, tolerance=2e-4)  # of sums of up to 10,000 products


@pytest.mark.parametrize("name", ["1d strided, dilated", "2d bias", "pointwise", "3d"])
def test_float64(name):
    check_conv(CASES[name], AVX2, dtype="float64", scratch=False)


DEEP = {
    "taps of a volume": ConvCase(conv((3, 3, 3), pads=(1, 1, 1), bias=True), (310, 2, 1, 3), 20),
    "dilated beyond the image": ConvCase(conv((5, 5), (1, 1), (2, 3), (4, 6)), (331, 3, 4), 35, n=2),
    "two groups": ConvCase(conv((4, 7), pads=(2, 3), groups=2), (2 * 304, 2, 3), 64),
    "walked taps": ConvCase(conv((1, 40), pads=(0, 39)), (210, 1, 7), 5),
}


@in_turn(DEEP)
def test_channels_in_chunks(name, isa):
    """Sums of the first chunks wait in the output; the harness has filled it with other numbers."""
    check_conv(DEEP[name], isa, tolerance=2e-4)  # of sums of 8,000 products, up to 100


class Unchunked(ConvKernel):
    """Sweeps all input channels at once."""

    chunks = 1
    chunk_units = 1000


def test_chunks_follow_each_other_in_one_order():
    """Bits are those of all channels swept at once."""
    case = ConvCase(conv((9, 9), pads=(4, 4), bias=True), (70, 2, 2), 32)
    arrays, v = case.arrays(), HOST.lanes
    how = {"blocks": case.blocks(v), "out_block": v, "packed": [False, True, True]}
    boxes = Boxes.whole((1, 32, 2, 2))
    together = run_kernel(case.op, arrays, boxes, HOST, **how, kernel_cls=Unchunked)
    assert run_kernel(case.op, arrays, boxes, HOST, **how).tobytes() == together.tobytes()


LONG = {
    "11 taps": ConvCase(conv((11,), pads=(5,)), (3, 30), 4),
    "11 taps, strided": ConvCase(conv((11,), (3,), pads=(4,)), (3, 50), 4),
    "9 taps, dilated beyond the image": ConvCase(conv((9,), (1,), (3,), (12,)), (2, 11), 17),
    "9x10": ConvCase(conv((9, 10), pads=(4, 5)), (2, 3, 24), 3),
    "13 taps of few channels": ConvCase(conv((1, 13), pads=(0, 6)), (2, 2, 20), 3, plain=True),
}


@pytest.mark.parametrize(("name", "isa"), [(name, (HOST, ZEN4)[k % 2]) for k, name in enumerate(LONG)])
def test_long_rows(name, isa):
    check_conv(LONG[name], isa, scratch=False)


# without those that differ from others only in what is not looked at where taps of a row are walked
WALKED = [
    "1d",
    "1d strided, dilated",
    "2d uneven pads",
    "2d strides",
    "2d kernel larger than the image",
    "2d dilated beyond the image",
    "2d pads beyond the kernel",
    "2d bias",
    "2d few channels",
    "pointwise",
    "pointwise padded",
    "3d",
    "3d strides",
    "3d few channels",
    *LONG,
]


@in_turn(WALKED, first=1)
def test_taps_that_are_walked(monkeypatch, name, isa):
    """As rows are computed that would be too much code."""
    monkeypatch.setattr(row_tiles, "MOST_TAPS", 1)
    check_conv((CASES | LONG)[name], isa, scratch=False)


@pytest.mark.parametrize(("kernel", "pad", "x", "m"), [(183, 37, (13, 2, 265), 18), (126, 73, (14, 1, 73), 27)])
def test_packed_weights_do_not_decide_which_taps_are_walked(kernel, pad, x, m):
    """Tiles of channels differ, as the last block of few outputs is another one where weights are packed. Classes of
    boxes, which know of no packing, tell the rows of tiles; a kernel that disagreed wrote nothing."""
    op, f32 = conv((1, kernel), pads=(0, pad)), np.dtype(np.float32)
    ins = (TensorType((1, *x), f32), TensorType((m, x[0], 1, kernel), f32))
    out = op.infer(ins)
    operands = dense(ins[0], 8), dense(ins[1], 1)
    walks = set()
    for packed in (False, True):
        _, [shape_class, *_] = ConvKernel.classify(op, operands, dense(out, 8), Boxes.whole(out.shape), AVX2)
        scheme = ConvKernel(op, operands, dense(out, 8), AVX2, (False, packed), shape_class)
        walks.add(scheme.walks_taps)
        assert scheme.walks_taps == (tuple(shape_class[2:]) == ANY_ROW)
    assert len(walks) == 1


def test_walked_taps_of_weights_that_are_no_constants(monkeypatch):
    monkeypatch.setattr(row_tiles, "MOST_TAPS", 1)
    check_conv(ConvCase(conv((2, 2), bias=True), (5, 3, 4), 9), AVX2, packed=False, scratch=False)


WIDE = {
    "400 taps on padding": ConvCase(conv((400,), pads=(399,)), (1, 200), 3),
    "400 plain taps on padding": ConvCase(conv((1, 400), pads=(0, 300)), (1, 2, 200), 1, plain=True),
}


@pytest.mark.parametrize("name", WIDE)
def test_wide_windows_are_little_code(name):
    case, lanes = WIDE[name], HOST.lanes
    check_conv(case, HOST, scratch=False)
    arrays, blocks = case.arrays(), case.blocks(lanes)
    ins = tuple(dense(TensorType(a.shape, "float32"), b) for a, b in zip(arrays, blocks, strict=True))
    out = case.op.infer([o.type for o in ins])
    boxes = Boxes.one((0,) * out.rank, out.shape)
    which, classes = ConvKernel.classify(case.op, ins, dense(out, lanes), boxes, HOST)
    kernel = ConvKernel(case.op, ins, dense(out, lanes), HOST, (False, True), classes[which[0]])
    code, _ = emit_sized(kernel, "wide")
    assert len(str(code).splitlines()) < 10_000


@pytest.mark.parametrize("isa", ISAS)
def test_groups_of_whole_blocks(isa):
    v = isa.lanes
    check_conv(ConvCase(conv((2, 2), groups=2, bias=True), (2 * v, 3, 4), 4 * v), isa)
    check_conv(ConvCase(conv((1, 1), groups=3), (15, 2, 3), 3 * v), isa, scratch=False)  # groups begin inside blocks
    check_conv(ConvCase(conv((1, 2), groups=2), (3 * v, 2, 3), 2 * v), isa, scratch=False)


def test_groups_of_few_plain_channels():
    check_conv(ConvCase(conv((2, 2), groups=2), (4, 3, 4), 32, plain=True), HOST, scratch=False)


BRICKS = {
    "rows": (CASES["2d"], (1, 9, 1, 9), 1),
    "squares": (ConvCase(conv((3, 3), pads=(1, 1)), (5, 6, 9), 18), (1, 9, 3, 3), 3),  # left, inner and right bricks
    "squares, uneven": (ConvCase(conv((2, 2), (2, 2), pads=(1, 1)), (5, 7, 9), 40), (1, 1, 2, 2), None),
    "channels": (ConvCase(conv((2,)), (5, 4), 75), (1, 2, 4), 1),
    "images of joined rows": (ConvCase(conv((1, 1)), (5, 4, 3), 20, n=3), (2, 9, 3, 3), None),
    "parts of rows": (ConvCase(conv((1, 1)), (5, 4, 5), 20), (1, 9, 4, 2), None),
    "volumes": (ConvCase(conv((3, 1, 2), pads=(1, 0, 1)), (2, 3, 2, 4), 17), (1, 1, 2, 1, 3), None),
}


@pytest.mark.parametrize("name", BRICKS)
def test_bricks_make_the_whole(name):
    case, brick, classes = BRICKS[name]
    check_bricks(case, brick, AVX2, classes)


@pytest.mark.parametrize("edge", [1, 2, 3, 4, 5])
def test_channels_cut_inside_groups(edge):
    """Two groups of six blocks, cut where tiles of blocks do not begin."""
    check_bricks(ConvCase(conv((1,), groups=2, bias=True), (4, 3), 12 * 8), (1, edge, 3), AVX2)


def test_a_box_of_the_first_channels_leaves_the_others_alone():
    """The harness looks at what lies around the box: a tile of blocks must not reach past its end."""
    case, v = ConvCase(conv((1, 1)), (4, 2, 3), 8 * 16), HOST.lanes
    boxes = [Boxes.one((0, a * v, 0, 0), (1, b * v, 2, 3)) for a, b in [(0, 1), (0, 3), (2, 7), (4, 8)]]
    check(
        case.op, case.arrays(), HOST, blocks=case.blocks(v), out_block=v, packed=[False, True], boxes=boxes, rtol=1e-4
    )


def test_boxes_that_hold_part_of_a_block_reach_over_all_of_it():
    """They may write its other channels, and no other block: the scratch holds three blocks, the guard page follows."""
    op, arrays = conv((1, 1)), ConvCase(conv((1, 1)), (4, 2, 3), 64).arrays()
    box = Boxes.one((0, 3, 0, 0), (1, 37, 2, 3))
    got = run_kernel(op, arrays, box, HOST, blocks=[16, 1], out_block=16, packed=[False, True], scratch=True)
    whole = evaluate_whole(op, arrays)
    np.testing.assert_allclose(got[:, 3:34], whole[:, 3:34], rtol=1e-4, atol=1e-5)


def test_an_empty_box_writes_nothing():
    case = CASES["2d"]
    empty = [
        Boxes.one((0, 0, 1, 2), (1, 20, 1, 4)),
        Boxes.one((0, 0, 2, 3), (1, 20, 4, 3)),
        Boxes.one((0,) * 4, (0,) * 4),
    ]
    check(case.op, case.arrays(), HOST, blocks=[16, 1], out_block=16, packed=[False, True], boxes=empty)


def test_nothing_of_the_tail_lanes_leaks():
    """Tail lanes of the input are NaN in the harness: only sums over the 17 channels that exist are finite."""
    case = ConvCase(conv((1, 1), bias=True), (17, 1, 2), 5)
    check(case.op, case.arrays(), HOST, blocks=[16, 1, 1], out_block=16, packed=[False, True, True], rtol=1e-4)


def test_bricks_along_a_row_share_their_inner_kernel():
    """A row of 64 pixels in bricks of 8: the first, the inner six and the last."""
    op = conv((3, 3), pads=(1, 1))
    x, w, out = (TensorType(s, "float32") for s in [(1, 16, 8, 64), (16, 16, 3, 3), (1, 16, 8, 64)])
    boxes = Boxes.one((0, 0, 0, 0), (1, 16, 8, 8))
    lo = np.repeat(boxes.lo, 8, 0) + np.arange(8)[:, None] * [0, 0, 0, 8]
    boxes = Boxes(lo, lo + np.array([1, 16, 8, 8]))
    ins, result = (dense(x, 16), dense(w)), dense(out, 16)
    which, classes = ConvKernel.classify(op, ins, result, boxes, HOST)
    assert choose_kernel(op, ins, result, HOST) is ConvKernel
    assert len(classes) == 3
    assert which.tolist() == [0, 1, 1, 1, 1, 1, 1, 2]


@st.composite
def random_cases(draw) -> ConvCase:
    rank = draw(st.integers(1, 3))

    def each(lo: int, hi: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(lo, hi)) for _ in range(rank))

    op = Conv(each(1, 3), each(1, 3), each(1, 3), each(0, 4), each(0, 4), bias=draw(st.booleans()))
    x = tuple(max(e, s - a - b) for e, s, a, b in zip(each(1, 6), op.window.spans, op.pads, op.pads_end, strict=True))
    return ConvCase(op, (draw(st.integers(1, 10)), *x), draw(st.integers(1, 20)), draw(st.integers(1, 2)))


@settings(max_examples=6, deadline=None)
@given(random_cases())
def test_random_windows(case):
    check_conv(case, AVX2, scratch=False)


@settings(max_examples=6, deadline=None)
@given(random_cases())
@example(ConvCase(conv((1, 1), (1, 2), pads=(0, 1), end=(0, 4)), (2, 2, 6), 17))
def test_random_windows_whose_taps_are_walked(case):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_tiles, "MOST_TAPS", 1)
        check_conv(case, AVX2, scratch=False)
