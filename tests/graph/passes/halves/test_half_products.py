"""Which products of a graph a model computes in float16."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from brickrt import Runtime
from brickrt.graph.builder import Builder
from brickrt.graph.passes.algebra.channels_first import channels_first
from brickrt.graph.passes.algebra.pointwise_products import move_products
from brickrt.graph.passes.fuse import fuse
from brickrt.graph.passes.halves.half_products import half_products
from brickrt.graph.passes.halves.wide_tensors import wide_tensors
from brickrt.graph.passes.rewrite import rewritten
from brickrt.ops.expr import apply, arg, cast, const
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Transpose, View
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise, Step
from brickrt.ops.operators.sampling.interp import Interp
from tests.graph.passes.algebra.test_pointwise_products import resized
from tests.support.graphs.small_graphs import array, make

F16, F32 = np.dtype(np.float16), np.dtype(np.float32)
NARROW, WIDEN = Map(cast(arg(0, F32), F16)), Map(cast(arg(0, F16), F32))
TURN, POINTWISE = Transpose((1, 0)), Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0))


def product(b: Builder, x: str, seed: int = 1) -> str:
    return b.emit(MatMul(), x, b.constant(array(8, 8, seed=seed), "w"))


def half(b: Builder) -> str:
    """x in float16, and then in float32."""
    return b.emit(WIDEN, b.emit(NARROW, "x"))


def read(b: Builder, *readers) -> str:
    """The product of what is float16, read so."""
    y = product(b, half(b))
    for op, *others in readers:
        y = b.emit(op, y, *others)
    return y


ROUNDED = cast(arg(0, F32), F16)
COMPUTED_IN_FLOAT16 = {
    "rounded": lambda b: read(b, (NARROW,)),
    "rounded where it is read": lambda b: read(b, (Map(cast(apply("tanh", ROUNDED), F32)),)),
    "rounded and widened": lambda b: read(b, (Map(cast(ROUNDED, F32)),)),
    "moved, then rounded": lambda b: read(b, (TURN,), (View((32,)),), (NARROW,)),
    "reduced": lambda b: read(b, (Reduce("sum", (1,), keepdims=True, pre=cast(ROUNDED, F32)),)),
    "rounded in each step of a row": lambda b: read(
        b, (Rowwise((1,), (Step("max", ROUNDED),), cast(apply("sub", ROUNDED, arg(1, F16)), F32)),)
    ),
    "of what was moved": lambda b: b.emit(NARROW, product(b, b.emit(View((4, 8)), b.emit(TURN, half(b))))),
}
NOT = {
    "a result of float32": lambda b: read(b),
    "a step in float32": lambda b: read(b, (Map(cast(apply("tanh", arg(0, F32)), F16)),)),
    "rounded here, not there": lambda b: [read(b, (NARROW,)), b.emit(TURN, b.nodes[-2].output)],
    "rounded in an expression that has it as well": lambda b: read(
        b, (Map(apply("add", cast(ROUNDED, F32), arg(0, F32))),)
    ),
    "a step of a row that is not rounded": lambda b: read(
        b, (Rowwise((1,), (Step("max", arg(0, F32)),), cast(ROUNDED, F32)),)
    ),
    "moved, not rounded": lambda b: read(b, (TURN,)),
    "reduced in float32": lambda b: read(b, (Reduce("sum", (1,), keepdims=True),)),
    "of float32": lambda b: b.emit(NARROW, product(b, "x")),
    "by what is computed in float32": lambda b: b.emit(NARROW, b.emit(MatMul(), half(b), b.emit(TURN, "x"))),
}


@pytest.mark.parametrize("build", COMPUTED_IN_FLOAT16.values(), ids=COMPUTED_IN_FLOAT16)
def test_factors_and_result_are_float16(build):
    graph = make(build, x=(4, 8))
    assert half_products(graph) == {n.output for n in graph.nodes if isinstance(n.op, MatMul)}


@pytest.mark.parametrize("build", NOT.values(), ids=NOT)
def test_a_factor_or_the_result_is_float32(build):
    assert half_products(make(build, x=(4, 8))) == set()


def test_both_factors_are_computed():
    def build(b: Builder) -> str:
        x = half(b)
        return b.emit(NARROW, b.emit(MatMul(), x, b.emit(TURN, x)))

    assert len(half_products(make(build, x=(4, 8)))) == 1


def test_epilogues_round_their_sums_and_what_they_add():
    """Two layers and a residual, fused: the first one's sums are rounded in the second one's epilogue."""

    def build(b: Builder) -> str:
        x = half(b)
        w = [b.constant(array(8, 8, 1, 1, seed=k), "w") for k in range(2)]
        first, second = (b.emit(POINTWISE, x, each) for each in w)
        total = apply("max", apply("add", ROUNDED, cast(arg(1, F32), F16)), const(0.0, F16))
        return b.emit(Map(cast(total, F32)), second, first)

    graph = fuse(make(build, x=(1, 8, 5, 5)))
    convs = [node for node in graph.nodes if isinstance(node.op, Conv)]
    assert [node.op.epilogue is None for node in convs] == [True, False]
    assert half_products(graph) == {node.output for node in convs}


def test_marks_stay_where_products_are_joined():
    """Queries, keys and values."""

    def build(b: Builder) -> list[str]:
        x, parts = half(b), []
        for seed in range(3):
            y = b.emit(NARROW, product(b, x, seed))
            parts.append(b.emit(WIDEN, b.emit(Transpose((1, 0)), y)))
        return parts

    after = rewritten(wide_tensors(make(build, x=(4, 8))))
    assert [node.op for node in after.nodes if isinstance(node.op, MatMul)] == [MatMul(halves=True)]


def test_marks_stay_where_products_move_before_a_resize():
    def build(b: Builder) -> str:
        x = resized(b, half(b), (16, 16), "linear")
        return b.emit(NARROW, b.emit(replace(POINTWISE, halves=True), x, b.constant(array(4, 32, 1, 1), "w")))

    after = move_products(make(build, x=(1, 32, 8, 8)))
    assert [type(node.op) for node in after.nodes][-2:] == [Interp, Map]
    assert [node.op.halves for node in after.nodes if isinstance(node.op, Conv)] == [True]


@pytest.mark.parametrize("mark", [False, True])
def test_marks_stay_where_channels_come_first(mark):
    def build(b: Builder) -> str:
        x = b.emit(Transpose((0, 2, 3, 1)), "x")
        y = b.emit(MatMul(halves=mark), x, b.constant(array(32, 16), "w"))
        return b.emit(Transpose((0, 3, 1, 2)), y)

    after = channels_first(make(build, x=(1, 32, 8, 8)))
    assert [node.op.halves for node in after.nodes if isinstance(node.op, Conv)] == [mark]


@pytest.mark.parametrize("exact", [False, True])
def test_a_model_of_float16(exact):
    """Its products are marked, but for one that it computes in float32; none are where it is to be exact."""
    w = array(64, 64, seed=1)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Cast", ["a"], ["b"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["b", "v"], ["c"]),
        helper.make_node("Tanh", ["c"], ["d"]),
        helper.make_node("Cast", ["d"], ["y"], to=TensorProto.FLOAT16),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [40, 64]) for name in ("x", "y")]
    constants = [numpy_helper.from_array(w.astype(F16), "w"), numpy_helper.from_array(w, "v")]
    graph = helper.make_graph(nodes, "halves", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with Runtime(model, device="cpu", threads=1, exact=exact) as runtime:
        runtime.execute({"x": array(40, 64).astype(F16)})
        ops = [node.op for plan in runtime.plan.plans for node in plan.graph.nodes]
    assert [op.halves for op in ops if isinstance(op, MatMul)] == [not exact, False]
