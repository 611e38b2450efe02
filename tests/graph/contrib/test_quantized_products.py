"""Products and pools of quantized tensors, beside NumPy in float64 and ONNX Runtime: of odd sizes, with zero points."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from brickrt.ops.operators.product_types import is_integer_product
from tests.support.contrib.contributed import BYTES, check_contributed, dequantize, quantize, scale, some, zero

RNG = np.random.default_rng(5)


def integer_products(runtime) -> list[bool]:
    """Whether each product of a model is one of bytes."""
    graphs = [plan.graph for plan in runtime.plan.plans]
    products = [(g, n) for g in graphs for n in g.nodes if n.op.name in ("Conv", "MatMul")]
    return [is_integer_product(*graph.ins(node)[:2]) for graph, node in products]


def standard(kind: str, *inputs: np.ndarray, **attrs: object) -> np.ndarray:
    """A standard operator in float64, by ONNX's reference."""
    names = [f"i{k}" for k in range(len(inputs))]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), None) for n, x in zip(names, inputs)
    ]
    node = helper.make_node(kind, names, ["y"], **attrs)
    graph = helper.make_graph([node], "one", infos, [helper.make_tensor_value_info("y", 11, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return ReferenceEvaluator(model).run(None, dict(zip(names, inputs)))[0]


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize(("alpha", "per_column", "bias"), [(1.0, True, (9,)), (0.5, False, (1, 9)), (1.0, True, None)])
def test_gemm(dtype, turned, floats, alpha, per_column, bias):
    """One product of bytes with its bias; floats where no scale of the result is given."""
    weights = some((9, 12) if turned else (12, 9), np.int8, 1)
    steps = RNG.uniform(0.002, 0.01, 9).astype(np.float32) if per_column else scale(0.004)
    zeros = np.zeros(steps.shape, np.int8)
    units = alpha * 0.02 * steps.astype(np.float64)

    def want(a, sa, za, b, sb, zb, c=None, sy=None, zy=None):
        b = dequantize(b, sb, zb, 0 if turned else 1)
        y = alpha * dequantize(a, sa, za) @ (b.T if turned else b) + (0 if c is None else c * units)
        return y if floats else quantize(y, sy, zy, dtype)

    c = None if bias is None else RNG.integers(-3000, 3000, bias).astype(np.int32)
    operands = [some((7, 12), dtype), scale(0.02), zero(121, dtype), weights, steps, zeros, c]
    operands += [] if floats else [scale(0.06), zero(101, dtype)]
    runtime = check_contributed("QGemm", operands, want, transB=turned, alpha=alpha)
    assert integer_products(runtime) == [True]


def test_gemm_of_a_transposed_tensor_and_depths_that_fill_no_words():
    def want(a, sa, za, b, sb, zb, c, sy, zy):
        return quantize(dequantize(a, sa, za).T @ dequantize(b, sb, zb), sy, zy, np.uint8)

    operands = [some((11, 3), np.uint8), scale(0.02), zero(9, np.uint8), some((11, 5), np.int8, 1), scale(0.01)]
    operands += [np.array(0, np.int8), None, scale(0.05), zero(100, np.uint8)]
    check_contributed("QGemm", operands, want, transA=1)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize(("bias", "per_column"), [(True, True), (False, False)])
def test_products_of_integers_in_float(dtype, bias, per_column):
    steps = RNG.uniform(0.002, 0.01, 9).astype(np.float32) if per_column else scale(0.004)
    zeros = np.zeros(steps.shape, np.int8) if per_column else np.array(3, np.int8)

    def want(a, b, sa, sb, za, zb, c=None):
        return dequantize(a, sa, za) @ dequantize(b, sb, zb, 1) + (0 if c is None else c)

    operands = [some((2, 3, 12), dtype), some((12, 9), np.int8, 1), scale(0.02), steps, zero(99, dtype), zeros]
    operands += [RNG.standard_normal(9).astype(np.float32)] if bias else []
    runtime = check_contributed("MatMulIntegerToFloat", operands, want)
    assert integer_products(runtime) == [True]


@pytest.mark.parametrize(("zeros", "bias"), [(True, True), (False, False), (False, True)])
def test_products_of_tensors_quantized_by_their_own_range(zeros, bias):
    def want(a, b, sb, zb=None, c=None):
        low, high = min(a.min(), 0), max(a.max(), 0)
        step = np.float32((high - low) / np.float32(255))
        shift = np.rint(-low / step)
        near = (np.clip(np.rint(a / step) + shift, 0, 255) - shift) * np.float64(step)
        return near @ dequantize(b, sb, zb, 1) + (0 if c is None else c)

    a = RNG.standard_normal((5, 12)).astype(np.float32)
    steps = RNG.uniform(0.002, 0.01, 9).astype(np.float32)
    operands = [a, some((12, 9), np.int8, 1), steps, np.zeros(9, np.int8) if zeros else None]
    operands += [RNG.standard_normal(9).astype(np.float32)] if bias else []
    runtime = check_contributed("DynamicQuantizeMatMul", operands, want)
    assert integer_products(runtime) == [True]


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("last", [0, 1])
def test_convolutions_with_channels_innermost(dtype, last):
    """The weights are as always."""

    def want(x, sx, zx, w, sw, zw, sy, zy, b):
        x = dequantize(x, sx, zx)
        x = x.transpose(0, 3, 1, 2) if last else x
        y = standard("Conv", x, dequantize(w, sw, zw, 0), b * 0.02 * sw.astype(np.float64), pads=[1, 0, 1, 2])
        return quantize(y.transpose(0, 2, 3, 1) if last else y, sy, zy, dtype)

    steps = RNG.uniform(0.002, 0.006, 10).astype(np.float32)
    operands = [some((2, 5, 7, 8) if last else (2, 8, 5, 7), dtype), scale(0.02), zero(119, dtype)]
    operands += [some((10, 8, 3, 3), np.int8, 1), steps, np.zeros(10, np.int8), scale(0.07), zero(120, dtype)]
    operands += [RNG.integers(-2000, 2000, 10).astype(np.int32)]
    runtime = check_contributed("QLinearConv", operands, want, channels_last=last, pads=[1, 0, 1, 2])
    assert integer_products(runtime) == [True]


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("whole", [False, True])
def test_means_of_windows(dtype, last, whole):
    how = {} if whole else {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 0, 0, 1], "count_include_pad": 1}

    def want(x, sx, zx, sy, zy):
        x = dequantize(x, sx, zx)
        x = x.transpose(0, 3, 1, 2) if last else x
        y = x.mean((2, 3), keepdims=True) if whole else standard("AveragePool", x, **how)
        return quantize(y.transpose(0, 2, 3, 1) if last else y, sy, zy, dtype)

    operands = [some((2, 5, 7, 3) if last else (2, 3, 5, 7), dtype), scale(0.02), zero(119, dtype)]
    operands += [scale(0.015), zero(124, dtype)]
    kind = "QLinearGlobalAveragePool" if whole else "QLinearAveragePool"
    check_contributed(kind, operands, want, channels_last=last, **how)


@pytest.mark.parametrize("dtype", BYTES)
def test_maxima_with_channels_innermost(dtype):
    def want(x):
        return standard("MaxPool", x.transpose(0, 3, 1, 2), kernel_shape=[3, 2], strides=[2, 1]).transpose(0, 2, 3, 1)

    check_contributed("NhwcMaxPool", [some((2, 7, 6, 5), dtype)], want, kernel_shape=[3, 2], strides=[2, 1])
