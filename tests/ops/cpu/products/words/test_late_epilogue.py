"""Outputs of a tile that are finished beside the next tile's products: all of them, once, with the definition's values.

tiles of a box   1 2 3 … n      channels by channels, rows by rows; what is left of the last one comes at the end
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.ops.cpu.kernel import choose_kernel
from brickrt.ops.cpu.operand import dense
from brickrt.ops.operators.conv import Conv
from brickrt.ops.types import Boxes, TensorType
from tests.ops.cpu.products.words.test_byte_dot import requantized
from tests.support.cpu.conv_cases import middle
from tests.support.cpu.harness import HOST, ZEN4, check


def pointwise(extras: int, strides: tuple[int, int] = (1, 1)) -> Conv:
    """With a scale per channel, and with two extra operands a residual."""
    return Conv((1, 1), strides, (1, 1), (0, 0), (0, 0), 1, True, requantized(extras))


def operands(op: Conv, channels: int, columns: int, sides: tuple[int, int], extras: int) -> list[np.ndarray]:
    rng = np.random.default_rng(channels + columns)
    x = rng.integers(0, 256, (2, channels, *sides)).astype(np.uint8)
    w = rng.integers(-128, 128, (columns, channels, 1, 1)).astype(np.int8)
    bias = rng.integers(-(2**15), 2**15, columns).astype(np.int32)
    scale = rng.uniform(1e-5, 1e-2, (1, columns, 1, 1)).astype(np.float32)
    out = [-(-side // step) for side, step in zip(sides, op.strides, strict=True)]
    return [x, w, bias, scale, rng.integers(0, 256, (2, columns, *out)).astype(np.uint8)][: 3 + extras]


def finishes_late(op: Conv, arrays: list[np.ndarray], isa=ZEN4) -> bool:
    """Whether the kernel does so for the whole output."""
    kinds = [TensorType(a.shape, a.dtype) for a in arrays]
    blocks, packed = [16, 1, 1, 1, 16], [False, True, True, True, False]
    ins = tuple(dense(kind, block) for kind, block in zip(kinds, blocks, strict=False))
    out = dense(op.infer(kinds), 16)
    cls = choose_kernel(op, ins, out, isa)
    _, classes = cls.classify(op, ins, out, Boxes.whole(out.shape), isa)
    return cls(op, ins, out, isa, tuple(packed[: len(ins)]), classes[0]).finishes_late


@settings(max_examples=6, deadline=None)
@given(
    st.sampled_from([64, 100, 256]),
    st.sampled_from([16, 70]),
    st.tuples(st.integers(1, 6), st.integers(1, 15)),
    st.sampled_from([(1, 1), (2, 2)]),
)
def test_residuals(channels, columns, sides, strides):
    op = pointwise(2, strides)
    arrays = operands(op, channels, columns, sides, 2)
    packed, shape = [False, True, True, True, False], arrays[-1].shape
    how = {"boxes": [Boxes.whole(shape)], "parts": [middle(shape, 16)]}  # others have kernels of their own
    check(op, arrays, ZEN4, blocks=[16, 1, 1, 1, 16], out_block=16, packed=packed, **how)


def test_no_residual():
    op = pointwise(1)
    arrays = operands(op, 64, 40, (3, 9), 1)
    assert finishes_late(op, arrays)
    check(op, arrays, ZEN4, blocks=[16, 1, 1, 1], out_block=16, packed=[False, True, True, True])


@pytest.mark.parametrize(
    ("channels", "extras", "late"), [(64, 1, True), (128, 1, False), (256, 2, True), (512, 2, False)]
)
def test_where_it_pays(channels, extras, late):
    op = pointwise(extras)
    arrays = operands(op, channels, 256, (14, 14), extras)
    assert finishes_late(op, arrays) is late
    assert not finishes_late(op, arrays, HOST)
