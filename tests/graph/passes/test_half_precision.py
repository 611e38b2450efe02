"""Graphs lowered to half precision compute nearly the same, and have the inputs and outputs they had."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from brickrt.graph.builder import Builder
from brickrt.graph.builders.arithmetic.softmax import softmax_over
from brickrt.graph.ir import Graph
from brickrt.graph.onnx_import.source import load
from brickrt.graph.passes.fuse import fuse
from brickrt.graph.passes.half_precision import to_half_precision
from brickrt.graph.passes.stitch import stitch
from brickrt.graph.passes.unfuse import unfuse
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.expr import apply, arg, cast, const
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Concat, Transpose, View
from brickrt.ops.operators.pool import Pool
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.types import TensorType
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.small_graphs import ADD, MUL, RELU, X, Y, array, conv3, make, number
from tests.support.zoo_networks import SMALLEST, network

F16, BF16, F32 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
HALVES = {"fp16": F16, "bf16": BF16}
TOLERANCE = {"fp16": 1e-2, "bf16": 5e-2}
PRECISIONS = pytest.mark.parametrize("precision", HALVES)


def nearly_same(before: Graph, precision: str, feeds: dict | None = None) -> Graph:
    """Asserts types of inputs and outputs, and results within the tolerance of the greatest one; returns the graph."""
    after = to_half_precision(before, precision)
    assert (after.inputs, after.outputs) == (before.inputs, before.outputs)
    assert all(after.types[name] == before.types[name] for name in (*before.inputs, *before.outputs))
    feeds = feeds or {name: array(*before.types[name].shape, seed=7) for name in before.inputs}
    expected, actual = interpret(before, feeds), interpret(after, feeds)
    for name, value in expected.items():
        assert actual[name].dtype == value.dtype
        scale = np.abs(value[np.isfinite(value)].astype(np.float64)).max(initial=1e-3)
        np.testing.assert_allclose(actual[name], value, rtol=0, atol=TOLERANCE[precision] * scale)
    return after


def dtypes(graph: Graph) -> list[tuple[str, str]]:
    return [(node.op.name, graph.out(node).dtype.name) for node in graph.nodes]


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_single_precision_leaves_the_graph_alone(precision):
    graph = make(lambda b: conv3(b, "x", 4), x=(1, 3, 5, 5))
    assert to_half_precision(graph, precision) is graph


@PRECISIONS
def test_products_read_and_write_halves_between_casts(precision):
    def build(b: Builder) -> str:
        x = b.emit(RELU, conv3(b, "x", 6, bias=True))
        return conv3(b, x, 4, seed=3)

    after = nearly_same(fuse(make(build, x=(1, 3, 6, 5))), precision)
    half = HALVES[precision].name
    assert dtypes(after) == [("Map", half), ("Conv", half), ("Conv", half), ("Map", "float32")]
    assert {a.dtype.name for a in after.constants.values()} == {half}


@PRECISIONS
def test_an_expression_that_gives_an_output_gives_float32(precision):
    def build(b: Builder) -> str:
        scores = b.emit(View((2, 4 * 5 * 5)), conv3(b, "x", 4))
        return softmax_over(b, scores, (1,))

    after = nearly_same(stitch(fuse(make(build, x=(2, 3, 5, 5)))), precision)
    half = HALVES[precision].name
    assert dtypes(after) == [("Map", half), ("Conv", half), ("View", half), ("Rowwise", "float32")]


@PRECISIONS
def test_statistics_stay_float32_unless_a_product_reads_them(precision):
    """
    x ─ conv ─┬─ mean over space ─ view ─ matrix product ─
              └─ deviation of channels ─ scale ─
    """

    def build(b: Builder) -> tuple[str, str]:
        x = conv3(b, "x", 4)
        mean = b.emit(Reduce("sum", (2, 3), True, None, apply("div", X, number(30))), x)
        flat = b.emit(MatMul(), b.emit(View((2, 4)), mean), b.constant(array(4, 3)))
        spread = b.emit(Reduce("sum", (1,), True, apply("mul", X, X), apply("sqrt", X)), x)
        return flat, conv3(b, b.emit(Map(apply("div", X, Y)), x, spread), 2)

    after = nearly_same(make(build, x=(2, 3, 6, 5)), precision)
    kinds = [after.out(node).dtype for node in after.nodes if isinstance(node.op, Reduce)]
    assert kinds == [HALVES[precision], F32]


@PRECISIONS
def test_what_moves_only_keeps_its_type(precision):
    def build(b: Builder) -> str:
        x = conv3(b, "x", 4)
        pooled = b.emit(Pool("average", (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)), x)
        token = b.constant(array(1, 2, 6, 5))
        both = b.emit(Concat(1), pooled, token, "x")
        return b.emit(Transpose((0, 2, 3, 1)), both)

    after = nearly_same(make(build, x=(1, 3, 6, 5)), precision)
    assert {after.types[name].dtype for node in after.nodes for name in node.inputs} == {F32, HALVES[precision]}
    assert [t for name, t in dtypes(after) if name in ("Pool", "Concat", "Transpose")] == [HALVES[precision].name] * 3


@PRECISIONS
def test_a_tensor_that_is_an_output_and_read_on(precision):
    def build(b: Builder) -> tuple[str, str, str]:
        first = conv3(b, "x", 4)
        second = b.emit(RELU, first)
        return first, second, conv3(b, second, 3)

    nearly_same(make(build, x=(1, 3, 6, 5)), precision)


def attention(mask_of: str) -> Graph:
    """softmax(q · k + mask) · v with a mask of -1e9 from integers, or as a constant; the first row is masked whole."""
    b = Builder(reserved=("q", "k", "v", "m"))
    b.types |= {name: TensorType((2, 6, 8), F32) for name in ("q", "k", "v")}
    b.types["m"] = TensorType((2, 6, 6), np.dtype(np.int64))
    scores = b.emit(MatMul(), "q", b.emit(Transpose((0, 2, 1)), "k"))
    if mask_of == "integers":
        free = b.emit(Map(cast(arg(0, np.int64), F32)), "m")
        mask = b.emit(Map(apply("mul", apply("sub", number(1), X), number(-1e9))), free)
    elif mask_of == "constant":
        values = np.where(array(2, 6, 6, seed=3) < 0, -1e9, 0).astype(np.float32)
        values[:, 0] = -1e9
        mask = b.constant(values)
    if mask_of == "where":
        masked = apply("where", apply("eq", arg(1, np.int64), const(0, np.int64)), number(-1e9), X)
        summed = b.emit(Map(masked), scores, "m")
    else:
        summed = b.emit(ADD, scores, mask)
    weights = softmax_over(b, summed, (2,))
    out = b.emit(MatMul(), weights, "v")
    inputs = ("q", "k", "v") if mask_of == "constant" else ("q", "k", "v", "m")
    return stitch(fuse(Graph(tuple(b.nodes), b.types, b.constants, inputs, (out,)).verify()))


@pytest.mark.parametrize("mask_of", ["integers", "constant", "where"])
@PRECISIONS
def test_masks_beyond_the_range_of_halves_stay_finite(precision, mask_of):
    graph = attention(mask_of)
    feeds = {name: array(2, 6, 8, seed=k) for k, name in enumerate(("q", "k", "v"))}
    if "m" in graph.inputs:
        feeds["m"] = (array(2, 6, 6, seed=3) > 0).astype(np.int64)
        feeds["m"][:, 0] = 0
    after = nearly_same(graph, precision, feeds)
    assert np.isfinite(interpret(after, feeds)[graph.outputs[0]]).all()


def test_bounds_may_be_large_and_constants_of_products_stay_finite():
    def build(b: Builder) -> str:
        clipped = b.emit(Map(apply("min", apply("max", X, number(0)), number(3e38))), conv3(b, "x", 2))
        return b.emit(MatMul(), clipped, b.constant(np.array([[1e6], [0], [0], [0], [0]], np.float32)))

    after = to_half_precision(make(build, x=(1, 2, 4, 5)), "fp16")
    assert all(np.isfinite(a).all() for a in after.constants.values())
    assert ("Map", "float32") not in dtypes(after)[:-1]


def test_powers_stay_float32_in_float16():
    def build(b: Builder) -> str:
        powers = b.emit(Map(apply("exp", X)), conv3(b, "x", 2))
        return b.emit(Map(apply("log", X)), powers)

    graph = make(build, x=(1, 2, 4, 5))
    after = to_half_precision(graph, "fp16")
    feeds = {"x": array(1, 2, 4, 5) * 10}
    expected, actual = (next(iter(interpret(g, feeds).values())) for g in (graph, after))
    np.testing.assert_allclose(actual, expected, rtol=1e-2, atol=0.2)


@PRECISIONS
@pytest.mark.parametrize("kind", ["gates", "factors"])
def test_convolutions_in_parts_and_with_factors(precision, kind):
    def gates(b: Builder) -> str:
        op = Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0), bias=True, epilogue=apply("mul", X, Y), gate_parts=2)
        return b.emit(op, "x", b.constant(array(8, 3, 1, 1)), b.constant(array(8)))

    def factors(b: Builder) -> str:
        op = Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0), epilogue=apply("add", X, Y), channel_scaled=True)
        return b.emit(op, "x", b.constant(array(4, 3, 1, 1)), b.constant(array(1, 3, 1, 1)), b.constant(array(4, 1, 1)))

    before = make(gates if kind == "gates" else factors, x=(1, 3, 6, 5))
    after = nearly_same(before, precision)
    plain = unfuse(after).verify()
    feeds = {"x": array(1, 3, 6, 5, seed=7)}
    actual, expected = (next(iter(interpret(g, feeds).values())) for g in (plain, before))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE[precision] * np.abs(expected).max())


@PRECISIONS
def test_integers_and_doubles_are_untouched(precision):
    b = Builder(reserved=("i", "d"))
    b.types |= {"i": TensorType((3, 4), np.dtype(np.int32)), "d": TensorType((3, 4), np.dtype(np.float64))}
    total = b.emit(Reduce("sum", (1,), True), "i")
    product = b.emit(MatMul(), "d", b.constant(np.ones((4, 2))))
    graph = Graph(tuple(b.nodes), b.types, b.constants, ("i", "d"), (total, product)).verify()
    after = to_half_precision(graph, precision)
    assert after.nodes == graph.nodes and after.types == graph.types


def test_an_expression_reads_an_input_without_a_cast():
    graph = make(lambda b: conv3(b, b.emit(MUL, "x", b.constant(array(3, 1, 1))), 2), x=(1, 3, 4, 4))
    after = to_half_precision(graph, "fp16")
    assert dtypes(after) == [("Map", "float16"), ("Conv", "float16"), ("Map", "float32")]
    assert after.types[after.nodes[0].inputs[0]].dtype == F32


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("mobilenetv2", "fp16"),
        ("nafnet", "bf16"),
        ("resnet34-3d", "bf16"),
        ("resnet50", "bf16"),
        ("unet", "fp16"),
        ("vit-s16", "fp16"),
    ],
)
def test_networks(name, precision):
    model, feeds = network(name, SMALLEST[name])
    types = {key: TensorType(array.shape, array.dtype) for key, array in feeds.items()}
    graph = specialize(first_stage(load(model)), types, {}).graph
    nearly_same(graph, precision, feeds)


def test_factors_only_leaves_other_constants_and_images_of_few_channels_alone():
    """The bias, what is added, and the first convolution's factors are float32; all others read and write halves."""

    def build(b: Builder) -> str:
        x = b.emit(RELU, conv3(b, "x", 6, bias=True))
        x = conv3(b, x, 4, seed=3, bias=True)
        x = b.emit(ADD, x, b.constant(array(1, 4, 1, 1)))
        return conv3(b, x, 8, seed=5)

    after = to_half_precision(fuse(make(build, x=(1, 3, 6, 5))), "bf16", factors_only=True)
    first, second, last, _ = after.nodes
    assert [[kind.dtype.name for kind in after.ins(node)] for node in (first, second, last)] == [
        ["float32", "float32", "float32"],
        ["bfloat16", "bfloat16", "float32", "float32"],
        ["bfloat16", "bfloat16"],
    ]
    assert all(after.out(node).dtype == BF16 for node in (first, second, last))


def test_products_of_bytes_stay_as_they_are():
    """A product in bfloat16, bytes of it times bytes, and the sums, scaled, times float weights again."""
    u8 = np.dtype(np.uint8)

    def build(b: Builder) -> str:
        x = b.emit(MatMul(), "x", b.constant(array(6, 8)))
        x = b.emit(Map(cast(arg(0, F32), u8)), x)
        scaled = MatMul(epilogue=apply("mul", cast(arg(0, np.int32), F32), arg(1, F32)))
        x = b.emit(scaled, x, b.constant(np.ones((8, 4), np.int8)), b.constant(array(4)))
        return b.emit(MatMul(), x, b.constant(array(4, 3)))

    after = to_half_precision(make(build, x=(5, 6)), "bf16", factors_only=True)
    products = [node for node in after.nodes if isinstance(node.op, MatMul)]
    assert [after.ins(node)[0].dtype.name for node in products] == ["bfloat16", "uint8", "bfloat16"]
    assert [after.out(node).dtype.name for node in products][1] == "float32"
