"""Winograd kernels of quantized integers: every bit as the definition has it."""

import numpy as np
import pytest

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.winograd.axes import Axes, Axis, axes_of
from brickrt.ops.cpu.winograd.integers.kernel import IntegerWinogradMaker
from brickrt.ops.cpu.winograd.integers.limits import GREATEST, OUTPUT_BOUND, has_integer_tiles, sums_are_small
from brickrt.ops.expr import apply, arg, cast, const
from brickrt.ops.operators.conv import Conv
from tests.support.cpu.harness import AVX2, HOST, ZEN4, check, random_boxes

FAMILY = IntegerWinogradMaker(4)

# shape, kernel, dilations, pads, pads_end
KINDS = {
    "2d": ((1, 40, 33, 13, 10), (3, 3), (1, 1), (1, 1), (1, 1)),
    "2d-one-pixel": ((1, 16, 16, 1, 1), (3, 3), (1, 1), (1, 1), (1, 1)),
    "2d-one-channel": ((2, 1, 3, 9, 14), (3, 3), (1, 1), (0, 2), (2, 0)),
    "2d-odd-blocks": ((1, 21, 50, 6, 23), (3, 3), (1, 1), (1, 1), (1, 1)),
    "2d-many": ((1, 150, 40, 18, 30), (3, 3), (1, 1), (1, 1), (1, 1)),
    "2d-d3x2": ((1, 16, 16, 8, 9), (3, 3), (3, 2), (1, 2), (3, 0)),
    "2d-1x3": ((1, 20, 40, 5, 13), (1, 3), (1, 1), (0, 1), (0, 1)),
    "2d-3x1": ((2, 3, 3, 13, 5), (3, 1), (1, 1), (1, 0), (1, 0)),
    "1d": ((3, 16, 16, 29), (3,), (1,), (1,), (1,)),
    "3d": ((1, 20, 40, 5, 9, 7), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
    "3d-1x3x3": ((1, 16, 16, 4, 9, 7), (1, 3, 3), (1, 1, 1), (0, 1, 1), (0, 1, 1)),
}


def arrays(n, c, k, *spatial, kernel, seed=0):
    """Inputs and weights over their whole ranges, the outermost ones often."""
    rng = np.random.default_rng(seed)
    x = rng.choice([0, 1, 254, 255, *rng.integers(0, 256, 8)], (n, c, *spatial)).astype(np.uint8)
    w = rng.choice([-128, -127, 127, *rng.integers(-128, 128, 8)], (k, c, *kernel)).astype(np.int8)
    return [x, w, rng.integers(-(2**31), 2**31, k).astype(np.int32)]


def compare(op, given, isa=HOST, **options):
    """Against the definition."""
    blocks = [isa.lanes, 1, 1, *[isa.lanes] * 4][: len(given)]
    packed = [False, *[True] * (1 + op.bias), *[False] * 4][: len(given)]
    check(
        op, given, isa, blocks=blocks, out_block=isa.lanes, packed=packed, rtol=0, atol=0, kernel_cls=FAMILY, **options
    )


WAYS = {"host": HOST, "vnni": ZEN4, "avx2": AVX2}
ISAS = pytest.mark.parametrize("isa", WAYS.values(), ids=WAYS)
# numbers of channels go into vectors of each in another way, and a swept dimension takes registers
EVERYWHERE = ("2d", "2d-one-channel", "2d-odd-blocks", "3d")


@pytest.mark.parametrize(
    ("kind", "way"),
    [(kind, way) for i, kind in enumerate(KINDS) for k, way in enumerate(WAYS) if kind in EVERYWHERE or i % 3 == k],
)
def test_sums_are_exact(kind, way):
    """All of the output, and by turns a part of it, which is another kernel."""
    isa = WAYS[way]
    shape, kernel, dilations, pads, pads_end = KINDS[kind]
    op = Conv(kernel, (1,) * len(kernel), dilations, pads, pads_end, 1, True, None)
    given = arrays(*shape, kernel=kernel)
    assert sums_are_small(given[1])
    out = evaluate_whole(op, given).shape
    whole, _, part = random_boxes(out, 1, isa.lanes)
    turn = list(KINDS).index(kind) // 3 + list(WAYS).index(way)
    compare(op, given, isa, boxes=[whole, part][: 1 + turn % 2], scratch=turn % 2 == 1)


@ISAS
def test_epilogue_quantizes(isa):
    """What follows a sum is applied to each."""
    value = apply("mul", cast(arg(0, "int32"), "float32"), const(0.001, "float32"))
    rounded = apply("round", value)
    clipped = apply("min", apply("max", rounded, const(0.0, "float32")), const(255.0, "float32"))
    op = Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1, True, cast(clipped, "uint8"))
    x, w, bias = arrays(1, 24, 40, 11, 9, kernel=(3, 3))
    whole, _, part = random_boxes((1, 40, 11, 9), 1, isa.lanes)
    compare(op, [x, w, bias % 1000], isa, boxes=[whole], parts=[part])


@ISAS
def test_the_largest_sums_that_are_exact(isa):
    """Weights whose sums reach the limit, all of one sign; one more is refused."""
    channels = (OUTPUT_BOUND - 1) // GREATEST // (9 * 127)
    w = np.full((16, channels, 3, 3), 127, np.int8)
    w[1::2] = -127
    rest = (OUTPUT_BOUND - 1) // GREATEST - channels * 9 * 127
    assert rest > 0
    x = np.full((1, channels, 5, 5), GREATEST, np.uint8)
    assert sums_are_small(w)
    compare(Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1, False, None), [x, w], isa)
    assert not sums_are_small(np.concatenate([w, w[:, :1]], axis=1))


def test_sums_of_one_sign_count():
    """Weights of both signs may be twice as large together."""
    w = np.full((2, 200, 3, 3), 127, np.int8)
    assert not sums_are_small(w)
    w[:, ::2] = -128
    assert sums_are_small(w)
    w[1] = -128
    assert not sums_are_small(w)


def test_weights_that_are_not_told_count_as_the_largest():
    """A plan's graph has constants of which only shapes are known."""
    told, untold = np.zeros((8, 200, 3, 3), np.int8), np.broadcast_to(np.int8(0), (8, 200, 3, 3))
    assert sums_are_small(told)
    assert not sums_are_small(untold)
    assert sums_are_small(untold[:, :100])


def test_strides_and_other_kernels_have_no_integer_tiles():
    def axes(kernel, strides) -> Axes:
        return axes_of(Conv(kernel, strides, (1, 1), (1, 1), (1, 1), 1, False, None), (9, 9), 4)

    assert has_integer_tiles(axes((3, 3), (1, 1)))
    assert not has_integer_tiles(axes((3, 3), (2, 2)))
    assert not has_integer_tiles(axes((5, 3), (1, 1)))
    assert not has_integer_tiles(Axes(*(Axis(None, 1, 1, 1, 1, 0, 1),) * 2, Axis(2, 2, 3, 1, 1, 1, 9)))
