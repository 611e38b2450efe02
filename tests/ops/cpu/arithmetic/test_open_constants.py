"""Scales and zero points that code reads: what is left open, and that one code is right for all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import brickrt.ops.cpu.all_kernels  # noqa: F401 (registers the kernels)
from brickrt.ops.base import Op
from brickrt.ops.cpu.arithmetic.bounds import bounds_of
from brickrt.ops.cpu.arithmetic.open_constants import OpenConst, is_integral, with_open_constants
from brickrt.ops.cpu.emit.sizes import SizeTable
from brickrt.ops.cpu.kernel import choose_kernel
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.sized_kernel import Outline, outline
from brickrt.ops.expr import Expr, apply, arg, cast, const, distinct
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.rowwise import Rowwise, Step
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.harness import AVX2, HOST, check

F32, U8, S8 = np.dtype(np.float32), np.dtype(np.uint8), np.dtype(np.int8)
WIDE = cast(arg(0, U8), F32)


def quantized(value: Expr, scale: float, zero: float, dtype: np.dtype = U8) -> Expr:
    """QuantizeLinear."""
    low, high = (0, 255) if dtype == U8 else (-128, 127)
    value = apply("round", apply("div", value, const(scale, F32)))
    if zero:
        value = apply("add", value, const(zero, F32))
    return cast(apply("min", apply("max", value, const(low, F32)), const(high, F32)), dtype)


def dequantized(k: int, scale: float, zero: float, dtype: np.dtype = U8) -> Expr:
    """DequantizeLinear of operand `k`."""
    value = cast(arg(k, dtype), F32)
    return apply("mul", apply("sub", value, const(zero, F32)) if zero else value, const(scale, F32))


def total(a: float, b: float, c: float, zeros: tuple[float, float, float], dtype: np.dtype = U8) -> Map:
    """A sum of two quantized tensors, quantized by a scale of its own."""
    x, y = dequantized(0, a, zeros[0], dtype), dequantized(1, b, zeros[1], dtype)
    return Map(quantized(apply("add", x, y), c, zeros[2], dtype))


def outline_of(op: Op, *dtypes: np.dtype) -> Outline:
    """That of a kernel for a matrix."""
    ins = [dense(TensorType((3, 40), dtype)) for dtype in dtypes]
    out = dense(op.infer([each.type for each in ins]))
    kernel = choose_kernel(op, ins, out, HOST)
    _, classes = kernel.classify(op, ins, out, Boxes.whole(out.shape), HOST)
    return outline(kernel(op, tuple(ins), out, HOST, (False,) * len(ins), classes[0]))


def opened(expr: Expr) -> list[OpenConst]:
    """The constants of an expression that are left open."""
    table = SizeTable()
    op = with_open_constants(Map(expr), table.number)
    return sorted({e for e in distinct(op.expr) if isinstance(e, OpenConst)}, key=lambda e: e.place)


def test_scales_and_zero_points_share_an_outline():
    one = outline_of(total(0.02, 0.3, 0.25, (7, 140, 101)), U8, U8)
    other = outline_of(total(0.5, 0.013, 1.25, (130, 3, 254)), U8, U8)
    assert one.text == other.text and one.numbers != other.numbers


@pytest.mark.parametrize("zeros", [(0, 140, 101), (7, 0, 101), (7, 140, 0)])
def test_a_zero_point_of_nothing_is_known(zeros):
    one = outline_of(total(0.02, 0.3, 0.25, (7, 140, 101)), U8, U8)
    assert one.text != outline_of(total(0.02, 0.3, 0.25, zeros), U8, U8).text


def test_equal_constants_are_one():
    """So code that computes a value once for both is no code for constants that differ."""
    equal, unequal = (outline_of(total(0.02, b, 0.25, (7, 7, 9)), U8, U8) for b in (0.02, 0.03))
    assert equal.text != unequal.text
    assert len(opened(total(0.02, 0.02, 0.25, (7, 7, 9)).expr)) == 4


KNOWN = [
    apply("mul", arg(0, F32), const(0.7, F32)),
    apply("max", arg(0, F32), const(3, F32)),
    apply("add", arg(0, F32), const(3, F32)),
    apply("erf", apply("div", arg(0, F32), const(1.5, F32))),
    apply("mul", WIDE, const(np.inf, F32)),
    apply("mul", WIDE, const(-0.5, F32)),
    apply("add", WIDE, const(2.5, F32)),
    apply("min", WIDE, const(np.inf, F32)),
    apply("add", WIDE, const(np.nan, F32)),
    apply("add", WIDE, const(300, F32)),
    apply("div", const(3, F32), WIDE),
    apply("min", apply("max", WIDE, const(0, F32)), const(255, F32)),
]


@pytest.mark.parametrize("expr", KNOWN)
def test_other_constants_are_known(expr):
    assert opened(expr) == []


def test_what_expressions_share_stays_shared():
    """So a node that many read is emitted once; one without such constants stays the very node."""
    deep: Expr = dequantized(0, 0.5, 7)
    for _ in range(60):
        deep = apply("add", deep, deep)
    done = with_open_constants(Map(deep), SizeTable().number).expr
    assert len(distinct(done)) == len(distinct(deep))
    plain = apply("mul", arg(0, F32), const(0.7, F32))
    assert with_open_constants(Map(plain), SizeTable().number).expr is plain


def test_bounds_are_those_of_all():
    scale, zero = opened(apply("add", apply("round", apply("mul", arg(0, F32), const(0.5, F32))), const(-9, F32)))
    assert bounds_of(scale) == (0, 2.0**16) and bounds_of(zero) == (-255, 0)


def test_integers():
    value = apply("sub", apply("round", arg(0, F32)), const(3, F32))
    assert is_integral(value) and is_integral(cast(arg(0, np.int32), F32))
    assert not is_integral(cast(arg(0, bool), F32)) and not is_integral(apply("mul", value, const(0.5, F32)))
    assert not is_integral(const(np.nan, F32)) and not is_integral(const(np.inf, F32))


SCALES = [(0.02, 0.3, 0.25, (7, 140, 101)), (0.5, 0.0131, 1.25, (130, 3, 255)), (1e-5, 900.5, 3.5, (1, 254, 2))]


@pytest.mark.parametrize("isa", [HOST, AVX2])
@pytest.mark.parametrize("numbers", SCALES)
def test_sums_of_bytes(numbers, isa):
    """The first ones' code serves the others."""
    rng = np.random.default_rng(0)
    check(total(*numbers), [rng.integers(0, 256, (5, 77), np.uint8) for _ in range(2)], isa)


@pytest.mark.parametrize("numbers", [(0.02, 0.3, 0.25, (7, -14, -101)), (0.5, 0.0131, 1.25, (-127, 3, 126))])
def test_sums_of_signed_bytes(numbers):
    rng = np.random.default_rng(1)
    check(total(*numbers, dtype=S8), [rng.integers(-128, 128, (5, 77), np.int8) for _ in range(2)], HOST)


@pytest.mark.parametrize("scale", [0.02, 0.3])
def test_tables_of_activations(scale):
    """Kernels that look bytes up share code whatever they compute."""
    x = dequantized(0, scale, 120)
    op = Map(quantized(apply("mul", x, apply("sigmoid", apply("add", x, x))), scale / 2, 60))
    slow = Map(quantized(apply("add", apply("tanh", x), apply("mul", x, apply("exp", x))), 0.1, 9))
    assert outline_of(op, U8).text == outline_of(slow, U8).text
    for each in op, slow:
        check(each, [np.arange(256, dtype=np.uint8).reshape(4, 64)], HOST)


@pytest.mark.parametrize("scale", [0.004, 0.25])
def test_rows(scale):
    """A softmax between quantized tensors."""
    x = dequantized(0, scale, 100)
    most, shifted = Step("max", x), apply("exp", apply("sub", x, arg(1, F32)))
    op = Rowwise((1,), (most, Step("sum", shifted)), quantized(apply("div", shifted, arg(2, F32)), 1 / 256, 3))
    rng = np.random.default_rng(2)
    check(op, [rng.integers(0, 256, (5, 77), np.uint8)], HOST, atol=1)
    plain = replace(op, expr=apply("div", shifted, arg(2, F32)))
    assert outline_of(op, U8).numbers != outline_of(plain, U8).numbers
