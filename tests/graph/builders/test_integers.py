"""Quantized layers as integer operators, against the same layers by ONNX's definition, dequantized and in float."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from brickrt import Runtime
from brickrt.graph.ir import Graph
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.operators.product_types import is_integer_product
from brickrt.ops.types import TensorType
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.quantized_models import QuantizedModel

SHAPE = (1, 6, 9, 8)
QUANTUM = 0.05


def graph_of(model: bytes, shape: tuple[int, ...], integers: bool) -> Graph:
    types = {"x": TensorType(shape, np.dtype(np.float32))}
    return specialize(first_stage(load(model)), types, {}, integers).graph


def check_model(model: bytes, shape: tuple[int, ...] = SHAPE, products: int = 1) -> Graph:
    """So many products of integers, no others, and results that are ONNX's but for a quantum here and there."""
    x = np.random.default_rng(7).uniform(-3, 3, shape).astype(np.float32)
    graph = graph_of(model, shape, integers=True)
    kinds = [graph.ins(node)[:2] for node in graph.nodes if node.op.name in ("Conv", "ConvTranspose", "MatMul")]
    assert sum(is_integer_product(*pair) for pair in kinds) == products
    assert products in (0, len(kinds))
    (want,) = interpret(graph_of(model, shape, integers=False), {"x": x}).values()
    (got,) = interpret(graph, {"x": x}).values()
    apart = np.abs(got - want) / QUANTUM
    assert apart.max() < 1.001
    assert (apart > 0.5).mean() <= 0.005
    return graph


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


ACTIVATIONS = [pytest.param(False, 0, id="unsigned"), pytest.param(False, 117, id="offset"),
               pytest.param(True, -128, id="signed"), pytest.param(True, -3, id="signed, offset")]  # fmt: skip


@pytest.mark.parametrize(("signed", "zero"), ACTIVATIONS)
def test_a_convolution_between_quantized_tensors(signed, zero):
    """x ─ Q ─ DQ ─ Conv ─ Relu ─ Q ─ DQ: one Map for the first Q, one product for the rest."""
    m = QuantizedModel(0, signed, zero)
    y = m.node("Relu", m.conv(m.quantized("x", 0.02), 0.02, (10, 6, 3, 3), pads=[1, 1, 1, 1]))
    graph = check_model(m.model(m.quantized(y, QUANTUM), SHAPE))
    padded = zero not in (0, -128)
    assert names(graph) == ["Map", *(["Take"] if padded else []), "Conv"]


def test_a_residual_block_is_two_products():
    """The addition of two quantized results is part of the later product, and nothing wider than bytes is stored."""
    m = QuantizedModel(1)
    x = m.quantized("x", 0.02)
    a = m.quantized(m.conv(x, 0.02, (8, 6, 1, 1)), 0.03, 120)
    b = m.quantized(m.conv(x, 0.02, (8, 6, 3, 3), pads=[1] * 4), 0.04, 130)
    y = m.node("Relu", m.node("Add", b, a))
    graph = check_model(m.model(m.quantized(y, QUANTUM), SHAPE), products=2)
    assert names(graph) == ["Map", "Conv", "Conv"]
    assert [graph.out(node).dtype.name for node in graph.nodes[:-1]] == ["uint8"] * 2


@pytest.mark.parametrize("signed", [False, True])
def test_pools_and_moves_of_equal_scales_run_on_bytes(signed):
    m = QuantizedModel(2, signed, -128 if signed else 0)
    pooled = m.quantized(m.node("MaxPool", m.quantized("x", 0.02), kernel_shape=[2, 2]), 0.02)
    both = m.quantized(m.node("Concat", pooled, pooled, axis=1), 0.02)
    turned = m.quantized(m.node("Transpose", both, perm=[0, 1, 3, 2]), 0.02)
    graph = check_model(m.model(m.quantized(m.conv(turned, 0.02, (5, 12, 1, 1)), QUANTUM), SHAPE))
    assert names(graph) == ["Map", "Pool", "Concat", "Transpose", "Conv"]


def test_other_scales_are_converted():
    m = QuantizedModel(3)
    pooled = m.quantized(m.node("MaxPool", m.quantized("x", 0.02), kernel_shape=[2, 2]), 0.03)
    check_model(m.model(m.quantized(m.conv(pooled, 0.03, (5, 6, 1, 1)), QUANTUM), SHAPE))


def test_what_is_joined_in_one_scale_is_converted_before():
    """A product's own result and bytes of another scale are joined as bytes."""
    m = QuantizedModel(10)
    x = m.quantized("x", 0.02)
    y = m.quantized(m.node("Relu", m.conv(x, 0.02, (8, 6, 1, 1))), 0.0317)
    joined = m.quantized(m.node("Concat", m.conv(x, 0.02, (4, 6, 1, 1)), y, axis=1), 0.0423, 90)
    model = m.model(m.quantized(m.conv(joined, 0.0423, (5, 12, 1, 1)), QUANTUM), SHAPE)
    graph = check_model(model, products=3)
    assert sorted(names(graph)) == ["Concat", "Conv", "Conv", "Conv", "Map"]
    assert graph.out(next(node for node in graph.nodes if node.op.name == "Concat")).dtype == np.uint8


def test_an_activation_in_many_quantized_steps_is_a_function_of_a_byte():
    """The bias, quantized as well, joins the product; what follows reads the byte that it stores."""
    m = QuantizedModel(12)
    w, _ = m.weights((8, 12), axis=1)
    x = m.quantized("x", 0.02)
    bias = m.quantized(m.constant(np.linspace(-0.5, 0.5, 12).astype(np.float32)), 0.0043, 120)
    y = m.quantized(m.node("Add", m.quantized(m.node("MatMul", x, w), 0.0317, 90), bias), 0.0331, 90)
    gate = m.quantized(m.node("Sigmoid", y), 0.00391)
    other, _ = m.weights((12, 4), axis=1)
    z = m.node("MatMul", m.quantized(m.node("Mul", y, gate), 0.0119), other)
    graph = check_model(m.model(m.quantized(z, QUANTUM, 90), (9, 8)), (9, 8), products=2)
    assert [(node.op.name, graph.out(node).dtype.name) for node in graph.nodes[:3]] == [
        ("Map", "uint8"),
        ("MatMul", "uint8"),
        ("Map", "uint8"),
    ]


@pytest.mark.parametrize(("zero", "products"), [(0, 1), (9, 0)])
def test_transposed_convolutions(zero, products):
    """Where the zero point is not 0, what it adds depends on how many taps reach an output: these stay in float."""
    m = QuantizedModel(11, zero=zero)
    w, scales = m.weights((6, 10, 3, 2), axis=1)
    bias = m.bias(10, (np.float32(0.02) * scales).astype(np.float32))
    y = m.node("ConvTranspose", m.quantized("x", 0.02), w, bias, strides=[2, 2], pads=[1, 0, 1, 0])
    graph = check_model(m.model(m.quantized(y, QUANTUM, 100), SHAPE), products=products)
    assert [node.op.name for node in graph.nodes].count("ConvTranspose") == 1


@pytest.mark.parametrize("shape", [(6, 1, 3, 3), (32, 3, 1, 1)])
def test_groups(shape):
    """Depthwise products are integer ones; groups of three channels do not fill words, and stay as they were."""
    m = QuantizedModel(4)
    y = m.conv(m.quantized("x", 0.02), 0.02, shape, group=6 // shape[1])
    model = m.model(m.quantized(y, QUANTUM), SHAPE)
    if shape[1] == 1:
        check_model(model)
        return
    graph = graph_of(model, SHAPE, integers=True)
    assert [graph.out(node).dtype.name for node in graph.nodes if node.op.name == "Conv"] == ["float32"]


@pytest.mark.parametrize("turned", [False, True])
def test_gemm(turned):
    m, shape = QuantizedModel(5), (3, 12)
    w, scales = m.weights((7, 12) if turned else (12, 7), axis=0 if turned else 1)
    bias = m.bias(7, (np.float32(0.02) * scales).astype(np.float32))
    y = m.node("Gemm", m.quantized("x", 0.02), w, bias, transB=int(turned))
    check_model(m.model(m.quantized(y, QUANTUM), shape), shape)


def test_matmul_with_a_bias_in_float():
    """The bias is added to the scaled sums; without QuantizeLinear behind it the product gives floats."""
    m, shape = QuantizedModel(6, signed=True, zero=5), (2, 3, 8)
    w, _ = m.weights((8, 5), scales=1)
    y = m.node("Add", m.node("MatMul", m.quantized("x", 0.02), w), m.constant(np.arange(5, dtype=np.float32)))
    graph = check_model(m.model(y, shape), shape)
    assert [name for name in names(graph) if name != "View"] == ["Map", "MatMul"]


def test_a_bias_in_another_unit():
    m = QuantizedModel(7)
    w, _ = m.weights((4, 6, 1, 1))
    y = m.node("Conv", m.quantized("x", 0.02), w, m.constant(np.linspace(-1, 1, 4).astype(np.float32)))
    check_model(m.model(m.quantized(y, QUANTUM), SHAPE))


def test_depths_that_are_no_whole_words_stay_in_float():
    m, shape = QuantizedModel(8), (3, 11)
    w, _ = m.weights((11, 4), axis=1)
    graph = graph_of(m.model(m.node("MatMul", m.quantized("x", 0.02), w), shape), shape, integers=True)
    assert graph.ins(next(node for node in graph.nodes if node.op.name == "BlockMatMul"))[0].dtype == np.float32


def test_sums_that_might_not_fit_stay_in_float():
    """140,000 products of up to 255 times 64, on average, may exceed 32 bits."""
    m, shape = QuantizedModel(9), (1, 140_000, 1, 1)
    w, _ = m.weights((2, 140_000, 1, 1))
    graph = graph_of(m.model(m.node("Conv", m.quantized("x", 0.02), w), shape), shape, integers=True)
    assert graph.ins(next(node for node in graph.nodes if node.op.name == "Conv"))[0].dtype == np.float32


def test_engines_without_integer_kernels_get_none():
    m = QuantizedModel(0)
    model = m.model(m.conv(m.quantized("x", 0.02), 0.02, (10, 6, 3, 3)), SHAPE)
    graph = graph_of(model, SHAPE, integers=False)
    assert all(t.dtype != np.int8 for t in graph.types.values())


X_ZERO, W_SCALE = np.uint8(120), np.array([0.004, 0.006, 0.005], np.float32)


def bytes_model(nodes: list, constants: dict[str, np.ndarray], kinds: tuple[int, int], shape: tuple[int, ...]) -> bytes:
    """Nodes from "x" to "y", whose element types are `kinds`."""
    tensors = [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    ends = [helper.make_tensor_value_info(n, k, s) for n, k, s in zip("xy", kinds, (shape, None), strict=True)]
    graph = helper.make_graph(nodes, "bytes", ends[:1], ends[1:], tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return made.SerializeToString()


def check_bytes(model: bytes, x: np.ndarray, most: float, products: int = 1) -> None:
    """So many products of integers, and results at most so far from those in float64."""
    results = []
    for integers in (True, False):
        kind = TensorType(x.shape, x.dtype)
        graph = specialize(first_stage(load(model)), {"x": kind}, {}, integers).graph
        found = [n for n in graph.nodes if n.op.name in ("Conv", "MatMul")]
        assert [is_integer_product(*graph.ins(n)[:2]) for n in found] == [integers] * (products if integers else 1)
        results.append(next(iter(interpret(graph, {"x": x}).values())))
    assert results[0].dtype == results[1].dtype
    np.testing.assert_allclose(*results, rtol=1e-6, atol=most)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantized_operators(dtype):
    """QLinearConv with a bias and padding, and QLinearMatMul."""
    rng, kind = np.random.default_rng(2), helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    limits = np.iinfo(dtype)
    w = rng.integers(-127, 128, (3, 4, 3, 3)).astype(np.int8)
    zero, one = np.array(limits.min + 9, dtype), np.array(7, dtype)
    known = {"xs": np.float32(0.02), "xz": zero, "w": w, "ws": W_SCALE, "wz": np.zeros(3, np.int8),
             "ys": np.float32(0.04), "yz": one, "b": rng.integers(-900, 900, 3).astype(np.int32)}  # fmt: skip
    node = helper.make_node("QLinearConv", ["x", *known], ["y"], pads=[1, 1, 0, 2])
    x = rng.integers(limits.min, limits.max + 1, (1, 4, 6, 5)).astype(dtype)
    check_bytes(bytes_model([node], known, (kind, kind), x.shape), x, 1)
    known |= {"w": w[:, :, 0, 0].T.copy(), "ws": np.float32(0.005), "wz": np.zeros((), np.int8)}
    node = helper.make_node("QLinearMatMul", ["x", *list(known)[:-1]], ["y"])
    check_bytes(bytes_model([node], known, (kind, kind), (5, 4)), x[0, :, :, 0][:, :5].T.copy(), 1)


@pytest.mark.parametrize("signed", [False, True])
def test_integer_operators(signed):
    """ConvInteger with padding, and MatMulInteger."""
    dtype, rng = np.int8 if signed else np.uint8, np.random.default_rng(4)
    kinds = (helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), TensorProto.INT32)
    known = {"w": rng.integers(0, 120, (3, 4, 2, 2)).astype(np.uint8), "xz": np.array(5, dtype), "wz": np.uint8(60)}
    x = rng.integers(0, 127, (1, 4, 6, 5)).astype(dtype)
    node = helper.make_node("ConvInteger", ["x", *known], ["y"], pads=[1, 0, 0, 1])
    check_bytes(bytes_model([node], known, kinds, x.shape), x, 0)
    known["w"] = known["w"][..., 0, 0].T.copy()
    node = helper.make_node("MatMulInteger", ["x", *known], ["y"])
    check_bytes(bytes_model([node], known, kinds, (5, 4)), x[0, :, :5, 0].T.copy(), 0)


def test_dynamic_quantization():
    """DynamicQuantizeLinear and MatMulInteger: the zero point is computed, and subtracted from the sums."""
    known = {"w": np.random.default_rng(6).integers(-128, 128, (12, 5)).astype(np.int8)}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "s"], ["y"]),
    ]
    x = np.random.default_rng(8).standard_normal((6, 12)).astype(np.float32)
    model = bytes_model(nodes, known, (TensorProto.FLOAT, TensorProto.FLOAT), x.shape)
    check_bytes(model, x, 1e-5)


@pytest.mark.parametrize(("shape", "group"), [((5, 4, 3, 2), 1), ((4, 1, 3, 3), 4)])
@pytest.mark.parametrize("zero", [7, 250])
def test_unsigned_weights_that_are_no_signed_bytes(shape, group, zero):
    """Less their zero point they lie beyond the range of bytes: the inputs' sums are added so many times."""
    w = np.random.default_rng(6).integers(0, 256, shape).astype(np.uint8)
    known = {"w": w, "xz": np.uint8(9), "wz": np.uint8(zero)}
    node = helper.make_node("ConvInteger", ["x", *known], ["y"], pads=[1, 0, 0, 1], group=group)
    x = np.random.default_rng(8).integers(0, 256, (2, 4, 6, 5)).astype(np.uint8)
    check_bytes(bytes_model([node], known, (TensorProto.UINT8, TensorProto.INT32), x.shape), x, 0, products=2)
    known["w"] = w.reshape(-1, 4)[:5].T.copy()
    node = helper.make_node("MatMulInteger", ["x", *known], ["y"])
    model = bytes_model([node], known, (TensorProto.UINT8, TensorProto.INT32), (5, 4))
    check_bytes(model, x[0, :, :5, 0].T.copy(), 0, products=2)


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 2, 1]])
def test_dynamic_quantization_of_images(pads):
    """What is around an image is the computed zero point."""
    known = {"w": np.random.default_rng(6).integers(-128, 128, (5, 4, 3, 2)).astype(np.int8)}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("ConvInteger", ["q", "w", "z"], ["y"], pads=pads),
    ]
    x = np.random.default_rng(8).standard_normal((2, 4, 6, 5)).astype(np.float32)
    check_bytes(bytes_model(nodes, known, (TensorProto.FLOAT, TensorProto.INT32), x.shape), x, 0)


@pytest.mark.parametrize(("depth", "kind"), [(64, np.float32), (258, np.float32), (259, np.float64)])
def test_products_of_two_computed_tensors_are_exact(depth, kind):
    """As in attention: x times its own transpose, of the largest bytes there are; zero points are computed too."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Mul", ["z", "one"], ["zero"]),
        helper.make_node("MatMulInteger", ["x", "t", "zero", "zero"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.UINT8, (3, depth)),
        helper.make_tensor_value_info("z", TensorProto.UINT8, ()),
    ]
    out = helper.make_tensor_value_info("y", TensorProto.INT32, None)
    one = numpy_helper.from_array(np.uint8(1).reshape(()), "one")
    graph = helper.make_graph(nodes, "attention", ends, [out], [one])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    x = np.random.default_rng(9).integers(200, 256, (3, depth)).astype(np.uint8)
    with Runtime(model, device="cpu", threads=1) as runtime:
        for zero in (0, 3):
            got = runtime.execute({"x": x, "z": np.array(zero, np.uint8)})["y"]
            centered = x.astype(np.int64) - zero
            np.testing.assert_array_equal(got, centered @ centered.T)
        (product,) = [node for plan in runtime.plan.plans for node in plan.graph.nodes if node.op.name == "MatMul"]
        assert runtime.plan.plans[0].graph.ins(product)[0].dtype == kind
