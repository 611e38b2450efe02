"""Elementwise kernels against the NumPy definition, for all ways that operands may lie."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.byte_functions import is_byte_function
from brickrt.ops.cpu.elementwise import map as map_kernels  # noqa: F401  (registers the kernels)
from brickrt.ops.expr import Expr, apply, arg, cast, const
from brickrt.ops.operators.map import Map
from tests.support.cpu.harness import AVX2, HOST, ZEN4, check

F32 = "float32"


def data(*shape: int, seed: int = 0, dtype: str = F32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def affine() -> Expr:
    """x0 * x1 + x2."""
    return apply("add", apply("mul", arg(0, F32), arg(1, F32)), arg(2, F32))


@pytest.mark.parametrize("isa", [HOST, AVX2], ids=["avx512", "avx2"])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (131,), (3, 50), (2, 5, 7), (2, 3, 4, 5), (1, 3, 2, 1, 3, 17)])
def test_plain(shape, isa):
    arrays = [data(*shape, seed=k) for k in range(3)]
    check(Map(affine()), arrays, isa)


@pytest.mark.parametrize(
    "shapes",
    [
        [(2, 5, 6, 7), (1, 5, 1, 1), (5, 1, 1)],
        [(2, 5, 6, 7), (2, 5, 6, 1), (7,)],
        [(2, 5, 6, 7), (), (1, 1, 6, 7)],
        [(1, 5, 1, 7), (2, 5, 6, 1), (2, 1, 1, 7)],
        [(3, 40), (40,), (3, 1)],
        [(4, 33, 1, 1), (4, 33, 1, 1), (33, 1, 1)],
        [(4, 1, 33, 1), (1, 33, 1), (4, 1, 1, 1)],
    ],
)
def test_plain_broadcast(shapes):
    check(Map(affine()), [data(*s, seed=k) for k, s in enumerate(shapes)])


@pytest.mark.parametrize("isa", [HOST, AVX2], ids=["avx512", "avx2"])
@pytest.mark.parametrize("channels", [1, 16, 37])
@pytest.mark.parametrize("spatial", [(), (9,), (6, 7), (5, 1), (3, 4, 5)])
def test_blocked(channels, spatial, isa):
    arrays = [data(2, channels, *spatial, seed=k) for k in range(3)]
    check(Map(affine()), arrays, isa, blocks=[isa.lanes] * 3, out_block=isa.lanes)


@pytest.mark.parametrize(
    ("shapes", "blocks"),
    [
        ([(2, 37, 6, 7), (1, 37, 1, 1), (1, 1, 6, 7)], [16, 16, 1]),
        ([(2, 37, 6, 7), (2, 37, 6, 7), (37, 1, 1)], [16, 1, 1]),
        ([(2, 32, 6, 7), (2, 32, 6, 7), (2, 32, 1, 1)], [16, 1, 16]),
        ([(2, 37, 6, 7), (2, 1, 6, 7), ()], [16, 16, 1]),
        ([(2, 37, 6, 7), (2, 37, 6, 1), (7,)], [1, 16, 1]),
        ([(2, 37), (37,), (2, 1)], [16, 1, 1]),
    ],
)
def test_blocked_broadcast(shapes, blocks):
    check(Map(affine()), [data(*s, seed=k) for k, s in enumerate(shapes)], blocks=blocks, out_block=16)


@pytest.mark.parametrize("shape", [(2, 37, 6, 7), (2, 37, 5, 33), (2, 37)])
def test_plain_output_of_blocked_operands(shape):
    check(Map(affine()), [data(*shape, seed=k) for k in range(3)], blocks=[16, 1, 16])


@pytest.mark.parametrize("shape", [(1, 37, 1, 1), (37, 1, 1), (1, 1, 1, 1), (), (1, 37, 6, 7), (1,)])
def test_packed_constants_of_a_blocked_output(shape):
    arrays = [data(2, 37, 6, 7), data(*shape, seed=1), data(*shape, seed=2)]
    blocks = [16, *[16 if len(shape) == 4 and shape[1] > 1 else 1] * 2]
    check(Map(affine()), arrays, blocks=blocks, out_block=16, packed=[False, True, True])


def test_packed_constants_of_a_plain_output():
    arrays = [data(2, 5, 6, 7), data(5, 1, 1, seed=1), data(7, seed=2)]
    check(Map(affine()), arrays, packed=[False, True, True])


@pytest.mark.parametrize(
    "dtype", ["float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
)
@pytest.mark.parametrize("block", [1, 16])
def test_dtypes(dtype, block):
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 2 if dtype == "bool" else 100, (2, 19, 3, 7)).astype(dtype) for _ in range(2)]
    condition = apply("lt", arg(0, dtype), arg(1, dtype))
    expr = apply("where", condition, arg(0, dtype), apply("max", arg(1, dtype), const(1, dtype)))
    check(Map(expr), arrays, blocks=[block] * 2, out_block=block)


@pytest.mark.parametrize("block", [1, 16])
def test_dtypes_of_operands_may_differ(block):
    rng = np.random.default_rng(0)
    x, mask, y = data(2, 19, 5, 9), rng.random((2, 19, 5, 9)) < 0.5, rng.integers(-9, 9, (2, 1, 5, 9))
    expr = apply("where", arg(1, bool), cast(apply("exp", arg(0, F32)), "float64"), cast(arg(2, "int64"), "float64"))
    check(Map(expr), [x, mask, y], blocks=[block, block, 1], out_block=block)


def test_long_expression_and_constant_only():
    x = arg(0, F32)
    swish = apply("mul", x, apply("sigmoid", x))
    gelu = apply("mul", swish, apply("add", apply("erf", swish), const(1, F32)))
    check(Map(gelu), [data(3, 77)])
    check(Map(apply("add", const(1, F32), const(2, F32))), [data(3, 77)])


def requantized_silu(dtype: np.dtype) -> Expr:
    """x · sigmoid(x) of a quantized x, with the sigmoid quantized as well; scales of which none halves another."""

    def quantized(value: Expr, scale: float, zero: int, to: np.dtype = dtype) -> Expr:
        span = np.iinfo(to)
        whole = apply("add", apply("round", apply("div", value, const(scale, F32))), const(zero, F32))
        return cast(apply("min", apply("max", whole, const(int(span.min), F32)), const(int(span.max), F32)), to)

    def number(whole: Expr, scale: float, zero: int) -> Expr:
        return apply("mul", apply("sub", cast(whole, F32), const(zero, F32)), const(scale, F32))

    x = number(arg(0, dtype), 0.0317, 3)
    gate = number(quantized(apply("sigmoid", x), 0.00391, 0, np.dtype(np.uint8)), 0.00391, 0)
    return quantized(apply("mul", x, gate), 0.0213, -5)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("isa", [ZEN4, HOST, AVX2], ids=["permuted", "avx512", "avx2"])
def test_functions_of_bytes_are_looked_up(isa, dtype):
    expr = requantized_silu(np.dtype(dtype))
    assert is_byte_function(expr)
    every = np.arange(2 * 37 * 5 * 7, dtype=np.int64).astype(dtype)
    check(Map(expr), [every], isa)
    check(Map(expr), [every.reshape(2, 37, 5, 7)], isa, blocks=[isa.lanes], out_block=isa.lanes)
    check(Map(expr), [every[:3]], isa)
