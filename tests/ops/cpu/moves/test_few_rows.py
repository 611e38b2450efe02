"""Images of a few channels of bytes brought into blocks: all of their bytes, zeros behind them, nothing beside."""

from __future__ import annotations

import numpy as np
import pytest

import brickrt.ops.cpu.moves.transpose  # noqa: F401 (registers the kernels)
from brickrt.ops.cpu.kernel import choose_kernel
from brickrt.ops.cpu.operand import dense
from brickrt.ops.operators.move import Reorder
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.harness import AVX2, HOST, call, check

ISAS = [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")]


def image(channels: int, width: int) -> np.ndarray:
    return np.random.default_rng(channels).integers(0, 256, (2, channels, 3, width)).astype(np.uint8)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("channels", "width"), [(1, 40), (2, 16), (3, 5), (3, 50), (4, 33), (5, 20), (19, 37)])
def test_blocks(channels, width, isa):
    check(Reorder("blocked"), [image(channels, width)], isa, out_block=isa.lanes)


def test_zeros_behind_the_bytes():
    x = image(3, 21)
    kind = TensorType(x.shape, x.dtype)
    operands = (dense(kind),), dense(kind, 16)
    kernel = choose_kernel(Reorder("blocked"), *operands, HOST)(Reorder("blocked"), *operands, HOST, (False,))
    out = np.full((2, 1, 3, 21, 16), 77, np.uint8)
    call(kernel, [out.ctypes.data, x.ctypes.data], Boxes.whole(x.shape))
    assert (out[..., 3:] == 0).all()
    np.testing.assert_array_equal(out[..., :3], np.moveaxis(x[:, None], 2, -1))
