"""Pixels of bytes that are packed together: tiles of every length, with the definition's values and no others.

pixels of a tile   |0 1 2 3|4 5 6 7|8 9|    the last group has one to four
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.products.conv import ConvKernel
from brickrt.ops.expr import apply, arg, cast, const
from brickrt.ops.operators.conv import Conv
from brickrt.ops.types import Boxes, TensorType
from tests.ops.cpu.products.words.test_byte_dot import F32, U8
from tests.ops.cpu.products.words.test_late_epilogue import operands
from tests.support.cpu.harness import AVX2, HOST, ZEN4, check


def byte(value, zero: int):
    """clip(round(value) + zero)"""
    shifted = apply("add", apply("round", value), const(zero, F32)) if zero else apply("round", value)
    return cast(apply("min", apply("max", shifted, const(0, F32)), const(255, F32)), U8)


def scaled(zero: int):
    """Sums times a scale per channel, which large ones take beyond the integers."""
    return byte(apply("mul", cast(arg(0, np.int32), F32), arg(1, F32)), zero)


def residual(zero: int):
    """A long expression, whose values are bounded: quantized, dequantized, added to a byte, quantized again."""
    inner = apply("round", apply("mul", cast(arg(0, np.int32), F32), arg(1, F32)))
    inner = apply("min", apply("max", inner, const(-100, F32)), const(155, F32))
    skip = apply("sub", cast(arg(2, U8), F32), const(17, F32))
    return byte(
        apply("add", apply("mul", inner, const(1.3719331, F32)), apply("mul", skip, const(0.6123457, F32))), zero
    )


def conv(epilogue, kernel=(1, 1), strides=(1, 1)) -> Conv:
    return Conv(kernel, strides, (1, 1), *[tuple(k // 2 for k in kernel)] * 2, 1, True, epilogue)


def arrays_of(op: Conv, columns: int, sides: tuple[int, int], extras: int) -> list[np.ndarray]:
    arrays = operands(replace(op, kernel=(1, 1), pads=(0, 0), pads_end=(0, 0)), 12, columns, sides, extras)
    w = np.random.default_rng(5).integers(-128, 128, (columns, 12, *op.kernel)).astype(np.int8)
    arrays[3] = arrays[3] * np.float32(1e-2)
    arrays[3][0, :3, 0, 0] = [1e9, 0.0013171, 3e4]
    return [arrays[0], w, *arrays[2:]]


def check_bytes(op: Conv, columns: int, sides: tuple[int, int], extras: int, isa=HOST, **how) -> None:
    arrays = arrays_of(op, columns, sides, extras)
    packed, blocks = [False, True, True, True, False], [isa.lanes, 1, 1, 1, isa.lanes]
    n = len(arrays)
    check(op, arrays, isa, blocks=blocks[:n], out_block=isa.lanes, packed=packed[:n], **how)


def packs(op: Conv, isa=HOST) -> bool:
    kinds = [TensorType(a.shape, a.dtype) for a in arrays_of(op, 32, (5, 6), 1)]
    ins = tuple(dense(kind, block) for kind, block in zip(kinds, [16, 1, 1, 1], strict=True))
    out = dense(op.infer(kinds), 16)
    _, classes = ConvKernel.classify(op, ins, out, Boxes.whole(out.shape), isa)
    return ConvKernel(op, ins, out, isa, (False, True, True, True), classes[0]).packs_outputs


def whole(*shape: int) -> dict:
    """The whole output alone: other boxes have other rows, whose broad code takes seconds to compile. Which rows it has
    does not depend on the zero point, so that one of them is enough."""
    return {"boxes": [Boxes.whole(shape)], "scratch": False}


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 7, 14, 27])
def test_rows_of_any_length(width):
    check_bytes(conv(scaled(0), (1, 3)), 40, (2, width), 1)


@pytest.mark.parametrize("width", [3, 5, 14, 27])
def test_rows_with_a_zero_point(width):
    check_bytes(conv(scaled(131), (1, 3)), 40, (2, width), 1, **whole(2, 40, 2, width))


@pytest.mark.parametrize("width", [1, 3, 6, 13, 30])
def test_residuals(width):
    check_bytes(conv(residual(255)), 33, (3, width), 2)


@pytest.mark.parametrize("width", [6, 30])
def test_residuals_without_a_zero_point(width):
    check_bytes(conv(residual(0)), 33, (3, width), 2, **whole(2, 33, 3, width))


def test_strides_between_inputs():
    check_bytes(conv(residual(9), (3, 3), (2, 2)), 64, (9, 13), 2)


def test_who_packs():
    """Vectors of 16 with two units for most of what rounds; epilogues that end in bytes with a constant zero point."""
    assert packs(conv(scaled(3)))
    assert not packs(conv(scaled(3)), ZEN4)
    assert not packs(conv(scaled(3)), AVX2)
    assert not packs(conv(cast(apply("max", cast(arg(0, np.int32), F32), const(0, F32)), np.int32)))
