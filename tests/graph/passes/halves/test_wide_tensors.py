"""Float16 models whose tensors become float32."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from brickrt import Runtime
from brickrt.graph.builder import Builder
from brickrt.graph.passes.fuse import fuse
from brickrt.graph.passes.half_weights import narrow_weights
from brickrt.graph.passes.halves.wide_tensors import wide_tensors
from brickrt.graph.passes.rewrite import rewritten
from brickrt.ops.expr import apply, arg, cast
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Concat, Take, Transpose
from brickrt.ops.operators.reduce import Reduce
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.small_graphs import array, make, ops

F16, F32 = np.dtype(np.float16), np.dtype(np.float32)
NARROW, WIDEN = Map(cast(arg(0, F32), F16)), Map(cast(arg(0, F16), F32))
ADD = Map(apply("add", arg(0, F16), arg(1, F16)))


def layer(b: Builder, x: str, seed: int) -> str:
    """float16 ─ float32 ─ product ─ float16."""
    weights = b.constant(array(8, 8, seed=seed).astype(F16).astype(F32), "w")
    return b.emit(NARROW, b.emit(MatMul(), b.emit(WIDEN, x), weights))


def check(build, halves: int, **shapes) -> list[str]:
    """Results are as near to those of the graph as float16 is, and so many nodes give float16."""
    before = make(build, **shapes)
    after = rewritten(wide_tensors(before))
    assert after.inputs == before.inputs
    assert [after.types[name] for name in after.outputs] == [before.types[name] for name in before.outputs]
    assert sum(after.out(node).dtype == F16 for node in after.nodes) == halves
    feeds = {name: array(*before.types[name].shape, seed=k) for k, name in enumerate(before.inputs)}
    want, got = interpret(before, feeds), interpret(after, feeds)
    for name in want:
        np.testing.assert_allclose(got[name].astype(F32), want[name].astype(F32), rtol=4e-3, atol=4e-3)
    return ops(after)


def test_layers_between_moves_and_sums_become_float32():
    """Two layers and their input, joined and turned, as a float16 output: it alone is rounded."""

    def build(b: Builder) -> str:
        x = b.emit(NARROW, "x")
        y = layer(b, x, 1)
        z = b.emit(ADD, layer(b, y, 2), x)
        return b.emit(NARROW, b.emit(WIDEN, b.emit(Transpose((1, 0)), b.emit(Concat(0), x, y, z))))

    check(build, 1, x=(4, 8))


def test_products_with_biases_are_joined_as_those_of_float32():
    """A bias, added in float16, becomes the product's own: then only moves read the three results."""

    def build(b: Builder) -> list[str]:
        x, parts = b.emit(NARROW, "x"), []
        for seed in range(3):
            bias = b.constant(array(8, seed=seed + 9).astype(F16), "bias")
            y = b.emit(ADD, layer(b, x, seed), bias)
            parts.append(b.emit(WIDEN, b.emit(Transpose((1, 0)), y)))
        return parts

    assert check(build, 0, x=(4, 8)).count("MatMul") == 1


def test_nothing_is_between_products_but_their_epilogue():
    def build(b: Builder) -> str:
        y = layer(b, b.emit(NARROW, "x"), 1)
        return b.emit(WIDEN, layer(b, b.emit(Map(apply("tanh", arg(0, F16))), y), 2))

    assert check(build, 0, x=(4, 8)) == ["MatMul", "MatMul"]


def test_constants_that_are_joined_with_what_is_computed_are_widened():
    """Rows of a table, which are added, and one that is joined; a sum of float16 is an output."""

    def build(b: Builder) -> tuple[str, str]:
        table, one = b.constant(array(50, 8, seed=5).astype(F16)), b.constant(array(1, 8).astype(F16))
        rows = b.emit(Take(((3, 7, 7, 1), None)), table)
        y = b.emit(ADD, rows, b.emit(NARROW, "x"))
        return b.emit(WIDEN, b.emit(Concat(0), y, one)), b.emit(Reduce("sum", (0,), keepdims=False), layer(b, y, 1))

    check(build, 1, x=(4, 8))


def test_an_output_that_is_moved_is_rounded_before():
    def build(b: Builder) -> tuple[str, str]:
        y = layer(b, b.emit(NARROW, "x"), 1)
        return b.emit(Transpose((1, 0)), y), b.emit(WIDEN, layer(b, y, 2))

    check(build, 2, x=(4, 8))


def test_weights_are_narrowed_where_no_tensor_tells_any_more():
    graph = make(lambda b: b.emit(WIDEN, layer(b, b.emit(NARROW, "x"), 1)), x=(4, 8))
    wide = rewritten(wide_tensors(graph))
    assert not any(kind.dtype == F16 for kind in wide.types.values())
    assert [array.dtype for array in narrow_weights(wide, graph).constants.values()] == [F16]
    assert narrow_weights(wide) is wide


def test_what_is_float32_stays_as_it_is():
    graph = fuse(make(lambda b: b.emit(MatMul(), "x", b.constant(array(8, 8), "w")), x=(4, 8)))
    assert wide_tensors(graph) is graph


@pytest.mark.parametrize("exact", [False, True])
def test_a_model_of_float16_is_rounded_after_each_operator_where_it_is_to_be_exact(exact):
    """x ─ MatMul ─ Sigmoid ─ Mul ─ y, all float16."""
    w = array(16, 16, seed=1).astype(F16)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Sigmoid", ["a"], ["s"]),
        helper.make_node("Mul", ["a", "s"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [20, 16]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "halves", ends[:1], ends[1:], [numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    x = array(20, 16, seed=2).astype(F16)
    with Runtime(model, device="cpu", threads=1, exact=exact) as runtime:
        got = runtime.execute({"x": x})["y"]
        constants = [c for plan in runtime.plan.plans for c in plan.graph.constants.values() if c.size == w.size]
    assert got.dtype == F16
    assert [c.dtype for c in constants] == [F16]
    a = x.astype(np.float64) @ w.astype(np.float64)
    a = a.astype(F16).astype(np.float64) if exact else a
    s = 1 / (1 + np.exp(-a))
    s = s.astype(F16).astype(np.float64) if exact else s
    assert (got != (a * s).astype(F16)).mean() < 0.02
