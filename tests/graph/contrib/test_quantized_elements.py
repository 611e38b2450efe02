"""Elementwise operators of quantized tensors, beside NumPy in float64 and ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.contrib.contributed import BYTES, check_contributed, dequantize, quantize, scale, some, zero

RNG = np.random.default_rng(3)

FUNCTIONS = {"QLinearAdd": np.add, "QLinearMul": np.multiply}


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("shapes", [((3, 5, 7), (3, 5, 7)), ((2, 5, 7), (5, 1)), ((1, 7), (4, 1, 7)), ((9,), ())])
def test_arithmetic(kind, dtype, shapes):
    def want(a, sa, za, b, sb, zb, sc, zc):
        return quantize(FUNCTIONS[kind](dequantize(a, sa, za), dequantize(b, sb, zb)), sc, zc, dtype)

    operands = [some(shapes[0], dtype), scale(0.021), zero(120, dtype), some(shapes[1], dtype, 1), scale(0.013)]
    operands += [zero(99, dtype), scale(0.0372), zero(131, dtype)]
    check_contributed(kind, operands, want, free=(0, 3))


@settings(max_examples=12, deadline=None)
@given(st.floats(1e-3, 1.0), st.floats(1e-3, 1.0), st.floats(1e-3, 1.0), *(st.integers(0, 255),) * 3)
def test_sums_of_any_scales(first, second, third, a_zero, b_zero, c_zero):
    """Every pair of bytes, in scales that are far apart too; not in those by which many sums are halfway between two
    results, such as 1, 0.3 and 1, since float32 rounds them to either side."""

    def want(a, sa, za, b, sb, zb, sc, zc):
        return quantize(dequantize(a, sa, za) + dequantize(b, sb, zb), sc, zc, np.uint8)

    every = np.arange(256).astype(np.uint8)
    zeros = [np.array(z, np.uint8) for z in (a_zero, b_zero, c_zero)]
    operands = [every[:, None], scale(first), zeros[0], every, scale(second), zeros[1], scale(third), zeros[2]]
    sums = (dequantize(*operands[:3]) + dequantize(*operands[3:6])) / np.float64(operands[6])
    assume((np.abs(sums % 1 - 0.5) < 1e-4).mean() < 0.01)
    check_contributed("QLinearAdd", operands, want, free=(0, 3), theirs=False)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize(("kind", "how"), [("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.13})])
def test_functions_of_a_byte(dtype, kind, how):
    def want(x, sx, zx, sy, zy):
        x = dequantize(x, sx, zx)
        return quantize(1 / (1 + np.exp(-x)) if not how else np.where(x < 0, 0.13 * x, x), sy, zy, dtype)

    operands = [some((2, 3, 37), dtype), scale(0.031), zero(126, dtype), scale(0.0041), zero(3, dtype)]
    check_contributed(kind, operands, want, **how)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize(("axis", "opset"), [(-1, 13), (1, 13), (1, 12), (2, 11)])
def test_softmax(dtype, axis, opset):
    """Before opset 13, all axes from one on are taken together."""

    def want(x, sx, zx, sy, zy):
        over = tuple(range(axis, x.ndim)) if opset < 13 else axis
        e = np.exp(dequantize(x, sx, zx))
        return quantize(e / e.sum(over, keepdims=True), sy, zy, dtype)

    operands = [some((3, 5, 7), dtype), scale(0.012), zero(100, dtype), scale(1 / 256), zero(0, dtype)]
    check_contributed("QLinearSoftmax", operands, want, axis=axis, opset=opset)


@pytest.mark.parametrize("dtype", BYTES)
def test_join(dtype):
    def want(sy, zy, *parts):
        found = [dequantize(*parts[k : k + 3]) for k in range(0, len(parts), 3)]
        return quantize(np.concatenate(found, 1), sy, zy, dtype)

    operands = [scale(0.03), zero(128, dtype)]
    for k, (size, s) in enumerate([(3, 0.03), (1, 0.05), (4, 0.011)]):
        operands += [some((2, size, 5), dtype, k), scale(s), zero(128 - 9 * k, dtype)]
    check_contributed("QLinearConcat", operands, want, free=(2, 5, 8), axis=1)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_means(dtype, keepdims):
    """ONNX Runtime has the operator's schema alone."""

    def want(x, sx, zx, sy, zy):
        return quantize(dequantize(x, sx, zx).mean((1, 2), keepdims=bool(keepdims)), sy, zy, dtype)

    operands = [some((3, 5, 7), dtype), scale(0.02), zero(100, dtype), scale(0.011), zero(120, dtype)]
    check_contributed("QLinearReduceMean", operands, want, theirs=False, axes=[1, 2], keepdims=keepdims)


@pytest.mark.parametrize("dtype", BYTES)
def test_where(dtype):
    def want(c, x, sx, zx, y, sy, zy, sz, zz):
        return quantize(np.where(c, dequantize(x, sx, zx), dequantize(y, sy, zy)), sz, zz, dtype)

    operands = [RNG.random((3, 1, 7)) < 0.4, some((3, 5, 7), dtype), scale(0.02), zero(9, dtype)]
    operands += [some((5, 7), dtype, 1), scale(0.03), zero(77, dtype), scale(0.028), zero(60, dtype)]
    check_contributed("QLinearWhere", operands, want, free=(0, 1, 4))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
@pytest.mark.parametrize("per_axis", [False, True])
def test_conversions(dtype, per_axis):
    """Bytes, and 16 bits, which the standard operator lacks in older opsets."""
    x = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    step = RNG.uniform(0.001, 0.01, 4).astype(np.float32) if per_axis else scale(0.004)
    zeros = RNG.integers(0, 100, 4).astype(dtype) if per_axis else np.array(30, dtype)

    def quantized(x, s, z):
        shape = (4, 1) if per_axis else ()
        limits = np.iinfo(dtype)
        whole = np.rint(x.astype(np.float64) / s.reshape(shape).astype(np.float64)) + z.reshape(shape)
        return np.clip(whole, limits.min, limits.max).astype(dtype)

    check_contributed("QuantizeLinear", [x, step, zeros], quantized, axis=1)
    want = lambda q, s, z: dequantize(q, s, z, 1)  # noqa: E731
    check_contributed("DequantizeLinear", [some((3, 4, 5), dtype), step, zeros], want, axis=1)


def test_products_and_sums_of_integers():
    """Neither has a kernel in every build of ONNX Runtime."""
    a, b = some((3, 5), np.uint8), some((5,), np.uint8, 1)
    want = lambda a, za, b, zb: (a.astype(np.int32) - za) * (b.astype(np.int32) - zb)  # noqa: E731
    operands = [a, np.array(9, np.uint8), b, np.array(100, np.uint8)]
    check_contributed("MulInteger", operands, want, free=(0, 2), theirs=False)
    total = lambda x: x.astype(np.int32).sum(1, keepdims=True)  # noqa: E731
    check_contributed("ReduceSumInteger", [a], total, theirs=False, axes=[1])
