"""The NumPy definitions against ONNX Runtime, operator by operator."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnxruntime
import pytest

from brickrt.ops.base import Op, evaluate_whole
from brickrt.ops.definitions.convolution import correlate
from brickrt.ops.definitions.erf import erf
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Concat, Reorder, Take, Transpose, View
from brickrt.ops.operators.pool import Pool
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.sampling.interp import AxisTaps, Interp
from brickrt.ops.types import TensorType

F32 = np.dtype(np.float32)


def peer(op_type: str, operands: list[np.ndarray | None], **attributes) -> np.ndarray:
    """One ONNX node run by ONNX Runtime; None is an input left out."""
    slots = ["" if a is None else f"x{k}" for k, a in enumerate(operands)]
    node = onnx.helper.make_node(op_type, slots, ["y"], **attributes)
    names, arrays = [n for n in slots if n], [a for a in operands if a is not None]
    kinds = [onnx.helper.np_dtype_to_tensor_dtype(a.dtype) for a in arrays]
    inputs = [onnx.helper.make_tensor_value_info(n, k, a.shape) for n, k, a in zip(names, kinds, arrays, strict=True)]
    outputs = [onnx.helper.make_tensor_value_info("y", kinds[0], None)]
    graph = onnx.helper.make_graph([node], "one", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, arrays, strict=True)))[0]


def normal(*shape: int, dtype: np.dtype = F32) -> np.ndarray:
    return np.random.default_rng(math.prod(shape)).normal(size=shape).astype(dtype)


def check(op: Op, arrays: list[np.ndarray], expected: np.ndarray) -> None:
    result = evaluate_whole(op, arrays)
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


WINDOWS = [
    # extents, kernel, strides, dilations, pads, pads_end, groups
    ((9,), (3,), (2,), (1,), (1,), (0,), 1),
    ((7, 8), (3, 2), (1, 2), (2, 1), (2, 0), (1, 1), 1),
    ((6, 5), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 4),
    ((6, 5), (1, 1), (2, 2), (1, 1), (0, 0), (0, 0), 2),
    ((5, 4, 6), (2, 3, 3), (1, 1, 2), (1, 1, 2), (0, 1, 2), (1, 1, 2), 2),
]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("window", WINDOWS)
def test_conv(window, bias: bool) -> None:
    extents, kernel, strides, dilations, pads, pads_end, groups = window
    arrays = [normal(2, 4, *extents), normal(8, 4 // groups, *kernel)] + ([normal(8)] if bias else [])
    attributes = {"strides": strides, "dilations": dilations, "pads": pads + pads_end, "group": groups}
    op = Conv(kernel, strides, dilations, pads, pads_end, groups, bias)
    check(op, arrays, peer("Conv", arrays, kernel_shape=kernel, **attributes))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("window", WINDOWS)
def test_conv_transpose(window, bias: bool) -> None:
    extents, kernel, strides, dilations, pads, pads_end, groups = window
    extra = tuple(s - 1 for s in strides)
    arrays = [normal(2, 4, *extents), normal(4, 6 // math.gcd(groups, 6), *kernel)]
    if bias:
        arrays.append(normal(arrays[1].shape[1] * groups))
    attributes = {"strides": strides, "dilations": dilations, "pads": pads + pads_end, "group": groups}
    expected = peer("ConvTranspose", arrays, kernel_shape=kernel, output_padding=extra, **attributes)
    check(ConvTranspose(kernel, strides, dilations, pads, pads_end, extra, groups, bias), arrays, expected)


def test_conv_in_slices_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{correlate.__module__}.COLUMN_LIMIT", 300)
    op = Conv((3, 3), (2, 1), (1, 2), (1, 2), (1, 2))
    arrays = [normal(2, 3, 9, 8), normal(4, 3, 3, 3)]
    attributes = {"strides": op.strides, "dilations": op.dilations, "pads": op.pads + op.pads_end}
    check(op, arrays, peer("Conv", arrays, **attributes))


def test_conv_epilogue() -> None:
    tail = apply("max", apply("add", arg(0, F32), arg(1, F32)), const(0, F32))
    arrays = [normal(1, 3, 6), normal(4, 3, 3), normal(4), normal(4, 1)]
    expected = np.maximum(peer("Conv", arrays[:3]) + arrays[3], 0)
    check(Conv((3,), (1,), (1,), (0,), (0,), bias=True, epilogue=tail), arrays, expected)


POOLS = [
    # extents, kernel, strides, pads, pads_end
    ((9,), (3,), (2,), (1,), (0,)),
    ((8, 7), (3, 2), (2, 3), (1, 0), (1, 1)),
    ((6, 6), (2, 2), (4, 4), (0, 0), (1, 1)),
    ((5, 4, 6), (2, 3, 3), (1, 2, 2), (0, 1, 2), (1, 1, 2)),
]


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("dilation", [1, 2])
def test_max_pool(pool, ceil: bool, dilation: int) -> None:
    extents, kernel, strides, pads, pads_end = pool
    dilations = (dilation,) * len(kernel)
    x = normal(2, 3, *extents)
    attributes = {"strides": strides, "dilations": dilations, "pads": pads + pads_end, "ceil_mode": int(ceil)}
    op = Pool("max", kernel, strides, dilations, pads, pads_end, ceil)
    check(op, [x], peer("MaxPool", [x], kernel_shape=kernel, **attributes))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_max_pool_of_integers(dtype: str) -> None:
    x = (normal(1, 2, 7, 7) * 50).astype(np.int8).view(dtype)
    op = Pool("max", (3, 3), (2, 2), (1, 1), (1, 1), (1, 1))
    check(op, [x], peer("MaxPool", [x], kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)))


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("dilation", [1, 2])
def test_average_pool(pool, ceil: bool, include: bool, dilation: int) -> None:
    extents, kernel, strides, pads, pads_end = pool
    dilations = (dilation,) * len(kernel)
    x = normal(2, 3, *extents)
    attributes = {"strides": strides, "dilations": dilations, "pads": pads + pads_end, "ceil_mode": int(ceil)}
    op = Pool("average", kernel, strides, dilations, pads, pads_end, ceil, include)
    check(op, [x], peer("AveragePool", [x], kernel_shape=kernel, count_include_pad=int(include), **attributes))


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("pool", POOLS)
def test_lp_pool(pool, p: int) -> None:
    extents, kernel, strides, pads, pads_end = pool
    x = normal(2, 3, *extents)
    op = Pool("lp", kernel, strides, (1,) * len(kernel), pads, pads_end, p=p)
    check(op, [x], peer("LpPool", [x], kernel_shape=kernel, strides=strides, pads=pads + pads_end, p=p))


@pytest.mark.parametrize("shapes", [((3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((1, 4), (3, 4, 1))])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_matmul(shapes, dtype: str) -> None:
    arrays = [(normal(*s) * 10).astype(dtype) for s in shapes]
    check(MatMul(), arrays, peer("MatMul", arrays))


def test_gemm_with_epilogue() -> None:
    tail = apply("mul", arg(0, F32), arg(1, F32))
    arrays = [normal(3, 4), normal(4, 5), normal(5), normal(3, 1)]
    expected = peer("Gemm", arrays[:3]) * arrays[3]
    check(MatMul(bias=True, epilogue=tail), arrays, expected)


def linear_taps(size: int, result: int) -> AxisTaps:
    """Half-pixel linear interpolation, edges repeated."""
    at = np.clip((np.arange(result) + 0.5) * size / result - 0.5, 0, size - 1)
    low = np.minimum(np.floor(at).astype(int), size - 1)
    high = np.minimum(low + 1, size - 1)
    pairs = np.stack([low, high], 1).tolist()
    weights = np.stack([1 - (at - low), at - low], 1).tolist()
    return AxisTaps(tuple(map(tuple, pairs)), tuple(map(tuple, weights)))


def test_interp_is_linear_resize() -> None:
    x = normal(2, 3, 5, 4)
    sizes = np.array([2, 3, 8, 3])
    op = Interp((None, None, linear_taps(5, 8), linear_taps(4, 3)))
    expected = peer("Resize", [x, None, None, sizes], mode="linear")
    check(op, [x], expected)


@pytest.mark.parametrize(("combine", "name"), [("sum", "Sum"), ("prod", "Prod"), ("max", "Max"), ("min", "Min")])
@pytest.mark.parametrize("axes", [(0,), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_reduce(combine, name: str, axes, keepdims: bool, dtype: str) -> None:
    x = (normal(3, 4, 2) * 3).astype(dtype)
    attributes = {"keepdims": int(keepdims)}
    check(Reduce(combine, axes, keepdims), [x], peer(f"Reduce{name}", [x, np.array(axes)], **attributes))


def test_reduce_mean_of_square() -> None:
    x, mean = normal(3, 4), normal(3, 1)
    difference = apply("sub", arg(0, F32), arg(1, F32))
    op = Reduce("sum", (1,), True, apply("mul", difference, difference), apply("div", arg(0, F32), const(4, F32)))
    check(op, [x, mean], ((x - mean) ** 2).mean(axis=1, keepdims=True))


@pytest.mark.parametrize(("combine", "value"), [("sum", 0), ("prod", 1), ("max", -np.inf), ("min", np.inf)])
def test_reduce_of_nothing(combine, value: float) -> None:
    result = evaluate_whole(Reduce(combine, (1,), False), [np.zeros((2, 0), F32)])
    np.testing.assert_array_equal(result, np.full(2, value, F32))


def test_moves() -> None:
    x = normal(2, 3, 4)
    np.testing.assert_array_equal(
        evaluate_whole(Take((None, (-1, 2, 0, 2), (3, 1)), 7), [x]),
        np.pad(x, ((0, 0), (1, 0), (0, 0)), constant_values=7)[:, [0, 3, 1, 3]][:, :, [3, 1]],
    )
    np.testing.assert_array_equal(evaluate_whole(Concat(1), [x, x[:, :1]]), np.concatenate([x, x[:, :1]], 1))
    np.testing.assert_array_equal(evaluate_whole(Transpose((2, 0, 1)), [x]), x.transpose(2, 0, 1))
    np.testing.assert_array_equal(evaluate_whole(View((6, 1, 4)), [x]), x.reshape(6, 1, 4))
    np.testing.assert_array_equal(evaluate_whole(Reorder("blocked"), [x]), x)


def test_map_broadcasts() -> None:
    a, b = normal(3, 1), normal(2, 1, 4)
    check(Map(apply("sub", arg(0, F32), arg(1, F32))), [a, b], a - b)


def test_erf() -> None:
    x = np.concatenate([np.linspace(-7, 7, 5001), [1e-300, 1e-9, np.inf, -np.inf]])
    np.testing.assert_allclose(erf(x), [math.erf(v) for v in x], rtol=1e-15, atol=0)
    assert np.isnan(erf(np.array([np.nan])))[0]


def test_flops() -> None:
    ins = [TensorType((1, 4, 8, 8), F32), TensorType((6, 2, 3, 3), F32)]
    op = Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), groups=2)
    assert op.flops(ins, op.infer(ins)) == 2 * 6 * 64 * 18
    pair = [TensorType((5, 3, 4), F32), TensorType((4, 7), F32)]
    assert MatMul().flops(pair, MatMul().infer(pair)) == 2 * 5 * 3 * 4 * 7
    square = Map(apply("mul", arg(0, F32), apply("neg", arg(0, F32))))
    assert square.flops(pair[:1], pair[0]) == 2 * 60
    assert View((60,)).flops(pair[:1], TensorType((60,), F32)) == 0


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (Conv((3,), (1,), (1,), (0,), (0,)), [(1, 2, 5), (4, 3, 3)]),
        (Conv((3,), (1,), (1,), (0,), (0,)), [(1, 3, 2), (4, 3, 3)]),
        (Conv((3,), (1,), (1,), (0,), (0,), bias=True), [(1, 3, 5), (4, 3, 3), (3,)]),
        (Conv((3,), (1,), (1,), (0,), (0,)), [(1, 3, 5), (4, 3, 3), (4,)]),
        (ConvTranspose((3,), (1,), (1,), (0,), (0,), (0,)), [(1, 2, 5), (3, 2, 3)]),
        (Pool("max", (3,), (1,), (1,), (0,), (0,)), [(1, 2, 2)]),
        (Pool("max", (3,), (1,), (1,), (0,), (0,)), [(1, 2, 4, 4)]),
        (Map(apply("add", arg(0, F32), arg(1, F32))), [(2, 3), (2, 2)]),
        (Map(apply("add", arg(0, F32), arg(1, F32))), [(2, 3)]),
        (Reduce("sum", (2,), True), [(2, 3)]),
        (Reduce("sum", (), True), [(2, 3)]),
        (Take((None, (3,))), [(2, 3)]),
        (Concat(0), [(2, 3), (2, 2)]),
        (Transpose((0, 0)), [(2, 3)]),
        (View((7,)), [(2, 3)]),
        (Interp((None, AxisTaps(((0, 3),), ((0.5, 0.5),)))), [(2, 3)]),
        (MatMul(), [(2, 3), (4, 3)]),
        (MatMul(), [(2, 2, 3), (3, 3, 4)]),
    ],
)
def test_what_does_not_fit_is_refused(op: Op, shapes) -> None:
    with pytest.raises(ValueError, match=f"^{op.name}: "):
        op.infer([TensorType(s, F32) for s in shapes])


@pytest.mark.parametrize("piece", [1, 3, 8, 1 << 15])
@pytest.mark.parametrize(
    "shapes",
    [[(), ()], [(7,), ()], [(1, 4, 5), (5,)], [(3, 1, 5), (4, 1)], [(2, 3, 4), (3, 4), (2, 1, 1)], [(1,), (2, 1, 9)]],
    ids=str,
)
def test_a_map_is_computed_in_pieces(monkeypatch, shapes, piece):
    """Tensors broadcast, and some have no dimensions."""
    monkeypatch.setattr("brickrt.ops.operators.map.PIECE", piece)
    rng, f32 = np.random.default_rng(0), np.dtype(np.float32)
    arrays = [np.asarray(rng.standard_normal(shape), np.float32) for shape in shapes]
    expr = arg(0, f32)
    for k in range(1, len(arrays)):
        expr = apply("add", apply("mul", expr, arg(k, f32)), arg(k, f32))
    want = arrays[0].astype(np.float64)
    for array in arrays[1:]:
        want = want * array + array
    found = evaluate_whole(Map(expr), arrays)
    assert found.shape == want.shape and found.dtype == f32
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)
    second = evaluate_whole(Map(arg(1, f32)), arrays)  # of the others the shape counts alone
    np.testing.assert_array_equal(second, np.broadcast_to(arrays[1], np.broadcast_shapes(*shapes)))
