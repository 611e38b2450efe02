"""Elementwise operators, casts, reductions and matrix products, over opsets and element types."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import helper

from brickrt.graph.errors import Unsupported
from tests.support.graphs.builders_harness import build, check, one_node, run_model

RNG = np.random.default_rng(4)
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


def data(*shape: int, dtype: type = np.float32, scale: float = 3) -> np.ndarray:
    return (RNG.standard_normal(shape) * scale).astype(dtype)


def whole(dtype: type, *shape: int, low: int = 1) -> np.ndarray:
    """Integers of either sign, at least `low` in size."""
    values = RNG.integers(low, 100, shape)
    return (values * RNG.choice([-1, 1], shape)).astype(dtype) if np.dtype(dtype).kind == "i" else values.astype(dtype)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Equal", "Less", "Greater"])
def test_binary_operators_broadcast(op: str) -> None:
    x, y = np.abs(data(3, 1, 4)), data(2, 1)
    for version in (12, 13):
        check(op, version, [x, y])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
def test_integer_arithmetic(op: str, dtype: type) -> None:
    check(op, 14, [whole(dtype, 4, 5), whole(dtype, 5)], oracle="reference")


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("fmod", [0, 1])
def test_modulo(dtype: type, fmod: int) -> None:
    check("Mod", 13, [whole(dtype, 4, 5), whole(dtype, 5)], fmod=fmod)


def test_modulo_of_floats() -> None:
    check("Mod", 13, [data(4, 5), data(5)], fmod=1)
    check("Mod", 28, [data(4, 5), data(5)], oracle="reference")


@pytest.mark.parametrize(
    ("x", "y"), [(np.int32, np.int32), (np.int64, np.int32), (np.int32, np.float32), (np.float32, np.int64)]
)
def test_power_keeps_the_type_of_the_base(x: type, y: type) -> None:
    base, exponent = np.array([1, 2, 3, -2, 5]).astype(x), np.array([0, 3, 2, 3, 1]).astype(y)
    check("Pow", 15, [base, exponent])


def test_square_is_a_product() -> None:
    model, feeds = one_node("Pow", 15, [data(3), np.float32(2)])
    b, _ = build(model, feeds, {"in1": feeds["in1"]})
    assert b.nodes[0].op.expr.fn == "mul" and b.nodes[0].inputs == ("in0",)


@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min"])
@pytest.mark.parametrize("count", [60, 61, 130])
def test_many_operands(op: str, count: int) -> None:
    check(op, 13, [data(3) for _ in range(count)])


@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min"])
def test_variadic_operators(op: str) -> None:
    operands = [data(2, 3), data(3), data(2, 1), data(1)]
    for count in (1, 2, 4):
        check(op, 13, operands[:count])


def test_logic() -> None:
    x, y = data(3, 4) > 0, data(4) > 0
    for op in ("And", "Or", "Xor", "Equal"):
        check(op, 13, [x, y])
    check("Not", 7, [x])
    check("Where", 16, [x, data(4), data(3, 1)])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bits(dtype: type) -> None:
    x, y = whole(dtype, 4, 5), whole(dtype, 5)
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        check(op, 18, [x, y])
    check("BitwiseNot", 18, [x])


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.int32, np.int64])
def test_shifts_beyond_the_width_leave_the_sign(direction: str, dtype: type) -> None:
    x, y = whole(dtype, 6), np.array([0, 1, 3, 7, 80, 8], dtype)
    check("BitShift", 28 if np.dtype(dtype).kind == "i" else 11, [x, y], oracle="reference", direction=direction)


def test_infinities() -> None:
    x = np.array([1, np.inf, -np.inf, np.nan], np.float32)
    check("IsNaN", 13, [x])
    for positive in (0, 1):
        for negative in (0, 1):
            check("IsInf", 10, [x], detect_positive=positive, detect_negative=negative)


def test_clip() -> None:
    x = data(3, 4)
    check("Clip", 7, [x], min=-1.0, max=0.5)
    check("Clip", 7, [x], max=0.5)
    for version in (11, 12, 13):
        check("Clip", version, [x, np.float32(-1), np.float32(0.5)])
        check("Clip", version, [x, None, np.float32(0.5)])
        check("Clip", version, [x, np.float32(1)])
    check("Clip", 13, [x, np.float32(1), np.float32(-1)])
    check("Clip", 13, [whole(np.int8, 9), np.int8(-20), np.int8(30)])


UNARY = {
    7: ["Abs", "Neg", "Floor", "Ceil", "Exp", "Sigmoid", "Tanh", "Reciprocal", "Sin", "Cos", "Tan", "Atan"],
    9: ["Sign", "Erf", "Sinh", "Cosh", "Asinh"],
    11: ["Round"],
}
ACTIVATIONS = {
    "Relu": [{}], "LeakyRelu": [{}, {"alpha": 0.3}], "Elu": [{}, {"alpha": 0.7}], "Selu": [{}, {"gamma": 2.0}],
    "Celu": [{}, {"alpha": 0.4}], "ThresholdedRelu": [{}, {"alpha": 0.2}], "HardSigmoid": [{}, {"alpha": 0.3}],
    "HardSwish": [{}], "Softplus": [{}], "Softsign": [{}], "Gelu": [{}, {"approximate": "tanh"}], "Mish": [{}],
    "Shrink": [{"bias": 0.4}, {"lambd": 1.5}],
}  # fmt: skip


@pytest.mark.parametrize(("version", "op"), [(v, op) for v, ops in UNARY.items() for op in ops])
def test_unary_operators(version: int, op: str) -> None:
    check(op, version, [np.append(data(30), [0.5, 1.5, -2.5]).astype(np.float32)])


@pytest.mark.parametrize("op", ["Sqrt", "Log", "Asin", "Acos", "Atanh", "Acosh"])
def test_unary_operators_of_narrow_domains(op: str) -> None:
    x = RNG.uniform(0.1, 0.9, 20).astype(np.float32)
    check(op, 13, [x + 1 if op == "Acosh" else x])


@pytest.mark.parametrize(("op", "attrs"), [(op, a) for op, each in ACTIVATIONS.items() for a in each])
def test_activations(op: str, attrs: dict) -> None:
    x = np.append(data(30), [0, 60, -60]).astype(np.float32)
    check(op, 20, [x], **attrs)
    check(op, 20, [x.astype(np.float16)], oracle="reference", tolerance=5e-3, **attrs)


def test_activations_do_not_overflow() -> None:
    x = np.array([-1e4, 1e4], np.float32)
    for op in ("Softplus", "Elu", "Selu", "Mish", "Sigmoid", "Gelu"):
        (y,) = run_model(*one_node(op, 20, [x]))
        assert np.isfinite(y).all(), op


def test_tails_keep_their_digits() -> None:
    """Where exp(x) vanishes beside 1, it is what is left of the logarithm."""
    x = np.array([-80, -40, -17, -9, -1, 0, 30], np.float32)
    rest = np.log1p(np.exp(x.astype(np.float64)))
    for op, wanted in (("Softplus", rest), ("Mish", x * np.tanh(rest))):
        (y,) = run_model(*one_node(op, 20, [x]))
        np.testing.assert_allclose(y, wanted, rtol=1e-6)


def test_prelu_and_gates() -> None:
    check("PRelu", 7, [data(2, 3, 4), data(3, 1)])
    check("PRelu", 16, [data(2, 3, 4), data(1)])
    check("PRelu", 7, [data(2, 3, 4, 5), data(3)], oracle="reference")
    check("PRelu", 9, [whole(np.int32, 2, 3), whole(np.int32, 3)], oracle="reference")
    check("Swish", 24, [data(9)], oracle="reference", alpha=1.7)
    check("SwiGLU", 28, [data(9), data(9)], oracle="reference", alpha=0.5)


KINDS = [np.bool_, np.int8, np.uint8, np.int32, np.int64, np.float16, np.float32, np.float64]


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_cast(source: type, target: type) -> None:
    x = np.array([0, 1, 2.5, 99.9, 3], np.float64).astype(source)
    for version in (9, 13, 19):
        check("Cast", version, [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))
    check("CastLike", 19, [x, np.zeros(1, target)], oracle="reference")


def test_exotic_casts_run_on_the_host() -> None:
    with pytest.raises(Unsupported):
        run_model(*one_node("Cast", 19, [data(3)], to=17))


REDUCTIONS = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
              "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"]  # fmt: skip


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [None, [1], [-1, 0], [0, 1, 2]])
@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions(op: str, axes: list[int] | None, keepdims: int) -> None:
    x = np.abs(data(3, 4, 5)) + 0.1
    attrs = {} if axes is None else {"axes": axes}
    if axes is None or min(axes) >= 0:
        check(op, 7, [x], keepdims=keepdims, **attrs)
    for version in (11,) if op == "ReduceSum" else (11, 13):
        check(op, version, [x], keepdims=keepdims, **attrs)
    check(op, 18, [x, None if axes is None else np.array(axes, np.int64)], keepdims=keepdims)
    check(op, 18, [x, np.zeros(0, np.int64)], keepdims=keepdims)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_no_axes_may_mean_no_reduction(op: str) -> None:
    """The elementwise part is still computed; compared with a reduction over an axis of one element."""
    x = np.abs(data(3, 4)) + 0.1
    (y,) = run_model(*one_node(op, 18, [x], noop_with_empty_axes=1))
    (expected,) = run_model(*one_node(op, 18, [x[..., None], np.array([2])], keepdims=0))
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1"])
def test_reductions_of_other_types(op: str, dtype: type) -> None:
    x = whole(dtype, 3, 4)
    check(op, 13, [x, np.array([1])] if op == "ReduceSum" else [x], **({} if op == "ReduceSum" else {"axes": [1]}))


def test_reductions_of_truth_and_of_halves() -> None:
    for op in ("ReduceMax", "ReduceMin"):
        check(op, 20, [data(3, 4) > 0, np.array([1])])
    x = np.full((2, 3000), 0.25, np.float16)
    (y,) = run_model(*one_node("ReduceMean", 18, [x, np.array([1])]))
    assert y.dtype == np.float16 and (y == 0.25).all()


def test_log_sum_exp_of_infinities() -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, 1], [1000, 1000]], np.float32)
    (y,) = run_model(*one_node("ReduceLogSumExp", 18, [x, np.array([1])], keepdims=0))
    np.testing.assert_allclose(y, [-np.inf, np.inf, 1000 + math.log(2)], rtol=1e-6)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_positions_of_extremes(op: str, last: int) -> None:
    x = np.round(data(4, 5, 6, scale=1)).astype(np.float32)
    for axis in (0, -1):
        check(op, 13, [x], axis=axis, keepdims=0, select_last_index=last)
    check(op, 13, [whole(np.int32, 4, 5)], axis=1, select_last_index=last)


def test_position_of_nan() -> None:
    x = np.array([[1, np.nan, 3, np.nan]], np.float32)
    (y,) = run_model(*one_node("ArgMax", 13, [x], axis=1))
    assert y.item() == 1


@pytest.mark.parametrize(
    ("a", "b"),
    [((4,), (4,)), ((4,), (4, 3)), ((3, 4), (4,)), ((2, 3, 4), (4,)), ((4,), (2, 4, 3)), ((2, 1, 3, 4), (5, 4, 2))],
)
def test_matmul(a: tuple, b: tuple) -> None:
    for version in (7, 13):
        check("MatMul", version, [data(*a), data(*b)])


def test_matmul_of_other_types() -> None:
    check("MatMul", 13, [data(3, 4, dtype=np.float64), data(4, 2, dtype=np.float64)])
    halves = [data(3, 4, dtype=np.float16), data(4, 2, dtype=np.float16)]
    check("MatMul", 13, halves, oracle="reference", tolerance=1e-2)
    with pytest.raises(Unsupported, match="int32"):
        run_model(*one_node("MatMul", 13, [whole(np.int32, 2, 2), whole(np.int32, 2, 2)]))


@pytest.mark.parametrize("constants", [[], ["in1"], ["in1", "in2"]])
@pytest.mark.parametrize("c", [None, (5,), (1, 5), (3, 1), (3, 5), (1,), ()])
@pytest.mark.parametrize("transposed", [(0, 0), (1, 1)])
def test_gemm(c: tuple | None, transposed: tuple[int, int], constants: list[str]) -> None:
    a, b = ((4, 3) if transposed[0] else (3, 4)), ((5, 4) if transposed[1] else (4, 5))
    inputs = [data(*a), data(*b), None if c is None else data(*c)]
    for alpha, beta in ((1.0, 1.0), (0.5, 2.0), (1.5, 0.0)):
        attrs = {"transA": transposed[0], "transB": transposed[1], "alpha": alpha, "beta": beta}
        (expected,) = check("Gemm", 13, inputs, **attrs)
        model, feeds = one_node("Gemm", 13, inputs, **attrs)
        known = [name for name in constants if name in feeds]
        np.testing.assert_allclose(run_model(model, feeds, known)[0], expected, 1e-5, 1e-5)


EQUATIONS = {
    "ij,jk->ik": [(2, 3), (3, 4)], "bij,bjk": [(2, 3, 4), (2, 4, 5)], "...ij,...jk->...ik": [(2, 3, 4), (2, 4, 5)],
    "bhid,bhjd->bhij": [(2, 3, 4, 5), (2, 3, 6, 5)], "ij->ji": [(2, 3)], "ij->": [(2, 3)], "bij->bj": [(2, 3, 4)],
    "i,j->ij": [(3,), (4,)], "i,i->": [(3,), (3,)], "ij,jk,kl->il": [(2, 3), (3, 4), (4, 5)],
    "ij,kl->i": [(2, 3), (4, 5)],
    "bi, bi -> ib": [(2, 3), (2, 3)], "ba": [(2, 3)], "...a,a->...": [(2, 3, 4), (4,)],
}  # fmt: skip


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation: str) -> None:
    operands = [data(*shape) for shape in EQUATIONS[equation]]
    (y,) = run_model(*one_node("Einsum", 12, operands, equation=equation))
    expected = np.einsum(equation, *operands)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, 1e-4, 1e-4)


@pytest.mark.parametrize(("equation", "shapes"), [("ii->i", [(3, 3)]), ("ij,ij->ij", [(1, 3), (2, 3)])])
def test_other_einsums_run_on_the_host(equation: str, shapes: list) -> None:
    with pytest.raises(Unsupported, match="einsum"):
        run_model(*one_node("Einsum", 12, [data(*s) for s in shapes], equation=equation))


def test_quantization() -> None:
    x = data(2, 3, 4, scale=20)
    scale, zero = np.array([0.5, 1, 2], np.float32), np.array([0, 3, -5], np.int8)
    check("QuantizeLinear", 13, [x, np.float32(0.3), np.uint8(100)])
    check("QuantizeLinear", 10, [x, np.float32(0.3), np.int8(-3)])
    check("QuantizeLinear", 13, [x, scale, zero], axis=1)
    check("QuantizeLinear", 21, [x, scale], oracle="reference", axis=-2, output_dtype=5)
    q = whole(np.int8, 2, 3, 4)
    check("DequantizeLinear", 10, [q, np.float32(0.3), np.int8(-3)])
    check("DequantizeLinear", 13, [q, scale, zero], axis=1)
    check("DequantizeLinear", 13, [whole(np.int32, 2, 3), np.float32(0.1)])
    blocks = np.abs(data(2, 3, 2)) + 0.1
    check("DequantizeLinear", 21, [q, blocks], oracle="reference", axis=2, block_size=2)


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_integer_matmul(rows: bool, columns: bool) -> None:
    a, b = whole(np.uint8, 3, 7), whole(np.int8, 7, 5)
    zeros = [whole(np.uint8, 3) if rows else np.uint8(3), whole(np.int8, 5) if columns else np.int8(-4)]
    check("MatMulInteger", 10, [a, b])
    (y,) = run_model(*one_node("MatMulInteger", 10, [a, b, *zeros]))
    column = zeros[0].astype(int).reshape(-1, 1)
    np.testing.assert_array_equal(y, (a - column) @ (b.astype(int) - zeros[1]))


def test_integer_conv() -> None:
    x, w = whole(np.uint8, 2, 4, 7, 6), whole(np.uint8, 6, 2, 3, 3)
    attrs = {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1]}
    check("ConvInteger", 10, [x, w, np.uint8(7), np.uint8(9)], **attrs)
    check("ConvInteger", 10, [x, w], **attrs)


def test_quantized_products() -> None:
    x, w = whole(np.uint8, 2, 4, 7, 6), whole(np.int8, 6, 4, 3, 3)
    scales = RNG.uniform(0.01, 0.02, 6).astype(np.float32)
    known = [np.float32(0.02), np.uint8(10), w, scales, np.zeros(6, np.int8), np.float32(0.9), np.uint8(120)]
    check("QLinearConv", 10, [x, *known, whole(np.int32, 6)], pads=[1, 1, 1, 1])
    a, b = whole(np.uint8, 5, 7), whole(np.uint8, 7, 4)
    left, right = [np.float32(0.02), np.uint8(40)], [np.float32(0.03), np.uint8(50)]
    check("QLinearMatMul", 10, [a, *left, b, *right, np.float32(0.05), np.uint8(127)])


def test_dynamic_quantization() -> None:
    for x in (data(3, 4), np.abs(data(5)), np.zeros(3, np.float32)):
        check("DynamicQuantizeLinear", 11, [x], outputs=3)
