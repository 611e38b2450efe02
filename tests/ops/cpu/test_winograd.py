"""Winograd kernels against the NumPy definition, in float64, over shapes that no tile divides."""

import numpy as np
import pytest
from harness import AVX2, HOST, check

from brickrt.ops.base import evaluate_whole
from brickrt.ops.conv import Conv
from brickrt.ops.cpu.winograd import Winograd2Kernel, Winograd4Kernel
from brickrt.ops.cpu.winograd_math import transform_weights, weight_matrix
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.types import Boxes

FAMILIES = [Winograd2Kernel, Winograd4Kernel]
TOLERANCE = 2e-5


def conv(pads=(1, 1), pads_end=(1, 1), bias=True, epilogue=None):
    return Conv((3, 3), (1, 1), (1, 1), pads, pads_end, 1, bias, epilogue)


def arrays(n, c, k, h, w, bias=True, seed=0):
    rng = np.random.default_rng(seed)
    shapes = [(n, c, h, w), (k, c, 3, 3), (k,)][: 2 + bias]
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def compare(family, op, given, isa=HOST, **options):
    """Against the definition, relative to the output's largest value."""
    scale = float(np.abs(evaluate_whole(op, given)).max())
    blocks = [isa.lanes, 1, 1, *[isa.lanes] * 4][: len(given)]
    packed = [False, *[True] * (1 + op.bias), *[False] * 4][: len(given)]
    check(
        op, given, isa, blocks=blocks, out_block=isa.lanes, packed=packed, rtol=0, atol=TOLERANCE * scale,
        kernel_cls=family, **options,
    )  # fmt: skip


@pytest.mark.parametrize("isa", [HOST, AVX2], ids=["host", "avx2"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "shape",
    [(1, 16, 16, 8, 8), (2, 20, 40, 9, 13), (1, 33, 16, 4, 3), (1, 16, 50, 1, 2), (1, 64, 64, 17, 18)],
    ids=lambda s: "x".join(map(str, s)),
)
def test_shapes(shape, family, isa):
    compare(family, conv(), arrays(*shape), isa)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pads", [((0, 0), (0, 0)), ((2, 1), (0, 2)), ((0, 2), (2, 0))])
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


@pytest.mark.parametrize("m", [2, 4])
def test_transformed_weights_of_a_constant_filter(m):
    """A filter of ones has the same transform along both axes."""
    u = transform_weights(np.ones((1, 1, 3, 3)), m).reshape(m + 2, m + 2)
    row = weight_matrix(m).sum(axis=1)
    np.testing.assert_allclose(u, np.outer(row, row), atol=1e-12)
