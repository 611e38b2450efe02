"""Maps join Maps, convolutions, matrix products and reductions."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.builder import Builder
from brickrt.graph.ir import Graph
from brickrt.graph.passes.fuse import OPERANDS, fuse
from brickrt.ops.expr import apply, arg, cast
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.types import TensorType
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.small_graphs import ADD, F32, MUL, RELU, X, Y, array, conv3, make, number, ops, same_results


def test_chain_of_maps_is_one_map():
    """x ─ relu ─ neg ─ exp  →  x ─ map"""

    def build(b: Builder) -> str:
        return b.emit(Map(apply("exp", X)), b.emit(Map(apply("neg", X)), b.emit(RELU, "x")))

    before = make(build, x=(2, 3))
    assert ops(same_results(before, fuse(before))) == ["Map"]


def test_diamond_of_maps_is_one_map_with_one_operand():
    """
    x ─┬─ relu ─┬─ add ─
       └─ neg ──┘
    """
    before = make(lambda b: b.emit(ADD, b.emit(RELU, "x"), b.emit(Map(apply("neg", X)), "x")), x=(2, 3))
    after = same_results(before, fuse(before))
    assert [node.inputs for node in after.nodes] == [("x",)]


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_functions_of_a_byte_are_one_map_however_long(dtype):
    """bytes ─ ×1.3 ─ quantized ─ ×1.3 ─ … ─ bytes: one look at a table, but several Maps of other numbers."""
    b = Builder(reserved=("x",))
    b.types["x"] = TensorType((16, 16), np.dtype(dtype))
    value, byte = "x", np.dtype(np.uint8)
    for _ in range(15):
        scaled = b.emit(Map(apply("mul", cast(arg(0, b.type(value).dtype), F32), number(1.3))), value)
        whole = b.emit(Map(apply("round", apply("div", X, number(1.29)))), scaled)
        value = b.emit(Map(cast(apply("min", X, number(250)), byte)), whole)
    before = Graph(tuple(b.nodes), b.types, b.constants, ("x",), (value,)).verify()
    after = fuse(before)
    assert (len(after.nodes) == 1) == (dtype == np.uint8)
    feeds = {"x": np.arange(256).reshape(16, 16).astype(dtype)}
    np.testing.assert_array_equal(interpret(after, feeds)[value], interpret(before, feeds)[value])


@pytest.mark.parametrize("other", ["mean", "product"])
def test_readers_of_bytes_widen_them_themselves(other):
    """
    x ─ quantize ─ dequantize ─┬─ mean             Bytes are stored, and both readers dequantize. A reader that is a
                               └─ relu             product reads floats: these are stored, made at once.
    """
    b = Builder(reserved=("x",))
    b.types["x"] = TensorType((2, 3, 4, 4), F32)
    byte = cast(apply("min", apply("max", apply("round", X), number(0)), number(255)), np.dtype(np.uint8))
    stored = b.emit(Map(byte), "x")
    value = b.emit(Map(apply("mul", cast(arg(0, np.dtype(np.uint8)), F32), number(0.5))), stored)
    first = b.emit(Reduce("sum", (2, 3), True), value) if other == "mean" else conv3(b, value, 4)
    ends = first, b.emit(RELU, value)
    before = Graph(tuple(b.nodes), b.types, b.constants, ("x",), ends).verify()
    after = fuse(before)
    whole = [node for node in after.nodes if after.out(node).dtype == np.uint8]
    assert bool(whole) == (other == "mean")
    feeds = {"x": np.random.default_rng(0).uniform(-9, 300, (2, 3, 4, 4)).astype(np.float32)}
    got, want = interpret(after, feeds), interpret(before, feeds)
    for name in ends:
        np.testing.assert_array_equal(got[name], want[name])


def test_map_with_two_readers_stays():
    """
    x ─ relu ─┬─ exp ─ (output)
              └─ neg ─ (output)
    """

    def build(b: Builder) -> tuple[str, str]:
        r = b.emit(RELU, "x")
        return b.emit(Map(apply("exp", X)), r), b.emit(Map(apply("neg", X)), r)

    before = make(build, x=(2, 3))
    assert ops(same_results(before, fuse(before))) == ["Map"] * 3


def test_map_that_is_an_output_stays():
    before = make(lambda b: (r := b.emit(RELU, "x"), b.emit(Map(apply("neg", X)), r)), x=(2, 3))
    assert ops(same_results(before, fuse(before))) == ["Map"] * 2


def test_map_of_a_smaller_shape_stays():
    """x [2,1] ─ exp ─┐
    y [2,3] ───── add: exp is not computed three times per row."""
    before = make(lambda b: b.emit(ADD, b.emit(Map(apply("exp", X)), "x"), "y"), x=(2, 1), y=(2, 3))
    assert ops(same_results(before, fuse(before))) == ["Map", "Map"]


def test_number_of_operands_is_limited():
    names = [f"x{k}" for k in range(12)]

    def build(b: Builder) -> str:
        total = names[0]
        for name in names[1:]:
            total = b.emit(ADD, total, name)
        return total

    before = make(build, **dict.fromkeys(names, (4,)))
    after = same_results(before, fuse(before))
    assert len(after.nodes) == 2
    assert max(len(node.inputs) for node in after.nodes) <= OPERANDS


def test_repeated_squaring_does_not_explode():
    def build(b: Builder) -> str:
        x = "x"
        for _ in range(40):
            x = b.emit(Map(apply("mul", X, apply("tanh", X))), x)
        return x

    before = make(build, x=(4,))
    assert 5 <= len(same_results(before, fuse(before)).nodes) < 40


def test_hard_swish_is_one_epilogue():
    """
    conv ─┬──────────────── mul ─ div
          └─ add ─ max ─ min ┘
    """

    def build(b: Builder) -> str:
        c = conv3(b, "x", 4)
        t = b.emit(Map(apply("max", apply("add", X, number(3)), number(0))), c)
        t = b.emit(Map(apply("min", X, number(6))), t)
        return b.emit(Map(apply("div", X, number(6))), b.emit(MUL, c, t))

    before = make(build, x=(1, 3, 5, 5))
    after = same_results(before, fuse(before))
    assert ops(after) == ["Conv"]
    assert len(after.nodes[0].inputs) == 2


def test_silu_is_one_epilogue():
    def build(b: Builder) -> str:
        c = conv3(b, "x", 4, bias=True)
        return b.emit(MUL, c, b.emit(Map(apply("sigmoid", X)), c))

    before = make(build, x=(1, 3, 5, 5))
    assert ops(same_results(before, fuse(before))) == ["Conv"]


def test_residual_attaches_to_the_later_convolution():
    """
    x ─┬─ conv a ─ conv b ─ add ─ relu
       └─ conv c ───────────┘
    """

    def build(b: Builder) -> str:
        left = conv3(b, conv3(b, "x", 4), 4, seed=2)
        right = conv3(b, "x", 4, seed=3)
        return b.emit(RELU, b.emit(ADD, left, right))

    before = make(build, x=(1, 3, 5, 5))
    after = same_results(before, fuse(before))
    assert ops(after) == ["Conv"] * 3
    assert [node.op.epilogue is not None for node in after.nodes] == [False, False, True]
    assert after.nodes[2].inputs[0] == "x"


def test_second_epilogue_follows_the_first():
    """conv ─ relu with an operand of another shape between: two steps attach one after the other."""

    def build(b: Builder) -> str:
        return b.emit(MUL, b.emit(ADD, conv3(b, "x", 4), "s"), "t")

    before = make(build, x=(1, 3, 5, 5), s=(4, 1, 1), t=(1, 4, 5, 5))
    once = fuse(before)
    again = same_results(before, fuse(once))
    assert ops(again) == ["Conv"]
    assert again.nodes[0].inputs[2:] == ("s", "t")


def test_matrix_product_takes_an_epilogue():
    def build(b: Builder) -> str:
        return b.emit(ADD, b.emit(RELU, b.emit(MatMul(), "x", b.constant(array(3, 5), "w"))), "y")

    before = make(build, x=(2, 4, 3), y=(2, 4, 5))
    assert ops(same_results(before, fuse(before))) == ["MatMul"]


def test_result_of_another_type_is_no_epilogue():
    before = make(lambda b: b.emit(Map(cast(X, np.int32)), conv3(b, "x", 4)), x=(1, 3, 5, 5))
    assert ops(same_results(before, fuse(before))) == ["Conv", "Map"]


def test_float64_takes_no_epilogue():
    def build(b: Builder) -> str:
        wide = b.emit(Map(cast(X, np.float64)), "x")
        w = b.constant(array(4, 3, 1, 1).astype(np.float64), "w")
        product = b.emit(Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0)), wide, w)
        return b.emit(Map(apply("neg", arg(0, np.float64))), product)

    before = make(build, x=(1, 3, 5, 5))
    assert ops(same_results(before, fuse(before))) == ["Map", "Conv", "Map"]


def test_map_goes_into_a_reduction():
    """mean of squared differences: x, m ─ sub ─ mul ─ sum; the full operand comes first."""

    def build(b: Builder) -> str:
        d = b.emit(Map(apply("sub", Y, X)), "m", "x")
        return b.emit(Reduce("sum", (1,), True), b.emit(Map(apply("mul", X, X)), d))

    before = make(build, m=(4, 1), x=(4, 6))
    after = same_results(before, fuse(before))
    assert ops(after) == ["Reduce"]
    assert after.nodes[0].inputs == ("x", "m")


def test_outer_product_stays_before_a_reduction():
    """Neither operand has the full shape that a reduction reads."""
    before = make(lambda b: b.emit(Reduce("sum", (1,), True), b.emit(MUL, "x", "y")), x=(4, 1), y=(1, 6))
    assert ops(same_results(before, fuse(before))) == ["Map", "Reduce"]


def test_unary_map_follows_a_reduction():
    def build(b: Builder) -> str:
        return b.emit(Map(apply("sqrt", apply("div", X, number(6)))), b.emit(Reduce("sum", (1,), False), "x"))

    before = make(lambda b: b.emit(RELU, build(b)), x=(4, 6))
    assert ops(same_results(before, fuse(before))) == ["Reduce"]


def test_binary_map_after_a_reduction_stays():
    before = make(lambda b: b.emit(ADD, b.emit(Reduce("sum", (1,), True), "x"), "y"), x=(4, 6), y=(4, 1))
    assert ops(same_results(before, fuse(before))) == ["Reduce", "Map"]


def test_softmax_keeps_its_three_steps():
    """x ─ max ─┐
    x ─────── exp(x-max) ─┬─ sum ─┐
                          └────── div: what two read stays a tensor."""

    def build(b: Builder) -> str:
        e = b.emit(Map(apply("exp", apply("sub", X, Y))), "x", b.emit(Reduce("max", (1,), True), "x"))
        return b.emit(Map(apply("div", X, Y)), e, b.emit(Reduce("sum", (1,), True), e))

    before = make(build, x=(4, 6))
    assert ops(same_results(before, fuse(before))) == ["Reduce", "Map", "Reduce", "Map"]


def test_equal_nodes_are_computed_once():
    """
    x ─┬─ exp ─ (output)
       └─ exp ─ neg ─ (output)
    """

    def build(b: Builder) -> tuple[str, str]:
        first, second = (b.emit(Map(apply("exp", X)), "x") for _ in range(2))
        return first, b.emit(Map(apply("neg", X)), second)

    before = make(build, x=(4, 6))
    assert ops(same_results(before, fuse(before))) == ["Map", "Map"]


def test_equal_constants_are_one_operand():
    def build(b: Builder) -> str:
        c, d = (b.constant(array(6, seed=5), "c") for _ in range(2))
        return b.emit(MUL, b.emit(ADD, "x", c), d)

    before = make(build, x=(4, 6))
    after = same_results(before, fuse(before))
    assert len(after.nodes[0].inputs) == 2
    assert len(after.constants) == 1


def test_origins_are_collected():
    graph = make(lambda b: b.emit(RELU, b.emit(Map(apply("neg", X)), "x")), x=(4,))
    named = [type(n)(n.name, n.op, n.inputs, n.output, (f"onnx{k}",)) for k, n in enumerate(graph.nodes)]
    after = fuse(type(graph)(tuple(named), graph.types, graph.constants, graph.inputs, graph.outputs))
    assert after.nodes[0].origin == ("onnx0", "onnx1")


@pytest.mark.parametrize("shape", [(0, 3), ()])
def test_empty_tensors_and_scalars_fuse(shape):
    before = make(lambda b: b.emit(RELU, b.emit(Map(apply("neg", X)), "x")), x=shape)
    assert ops(same_results(before, fuse(before))) == ["Map"]
    assert before.types[before.outputs[0]].dtype == F32
