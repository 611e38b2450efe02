"""Fused operators become one operator for each function again, and compute the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from brickrt.graph.builder import Builder
from brickrt.graph.onnx_import.source import load
from brickrt.graph.passes.ablation.single_steps import single_steps
from brickrt.graph.passes.fuse import fuse
from brickrt.graph.passes.stitch import stitch
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.expr import Apply, apply, walk
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.types import TensorType
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.plan_graphs import networks
from tests.support.graphs.small_graphs import ADD, MUL, RELU, X, Y, conv3, make, number, ops, same_results
from tests.support.task_checks import with_values
from tests.support.zoo_networks import SMALLEST, network


def check_single(graph) -> None:
    """No operator has more than one function."""
    for node in graph.nodes:
        for expr in (getattr(node.op, part, None) for part in ("expr", "epilogue", "pre", "post")):
            assert expr is None or (isinstance(node.op, Map) and sum(isinstance(e, Apply) for e in walk(expr)) <= 1)


def test_an_epilogue():
    """conv ─ relu ─ + ─ ·, of which the product is one operand twice."""

    def build(b: Builder) -> str:
        y = b.emit(RELU, conv3(b, "x", 4))
        z = b.emit(ADD, y, "z")
        return b.emit(MUL, z, b.emit(Map(apply("sigmoid", X)), z))

    before = make(build, x=(1, 3, 5, 5), z=(1, 4, 1, 1))
    fused = fuse(before)
    assert ops(fused) == ["Conv"]
    after = same_results(fused, single_steps(fused))
    assert ops(after) == ["Conv", *["Map"] * 4]  # what two read is computed once
    check_single(after)


def test_a_row():
    """A norm: mean, variance, and the quotient."""

    def build(b: Builder) -> str:
        mean = b.emit(Reduce("sum", (1,), True, None, apply("div", X, number(6))), "x")
        off = b.emit(Map(apply("sub", X, Y)), "x", mean)
        square = Reduce("sum", (1,), True, apply("mul", X, X), apply("sqrt", apply("div", X, number(6))))
        return b.emit(Map(apply("div", X, Y)), off, b.emit(square, off))

    stitched = stitch(fuse(make(build, x=(4, 6))))
    assert ops(stitched) == ["Rowwise"]
    after = same_results(stitched, single_steps(stitched))
    assert ops(after)[-1] == "Map" and ops(after).count("Reduce") == 2
    check_single(after)


def test_a_function_of_constants_and_small_operands_stays_whole():
    """The result is of the shape of an operand that the function leaves out."""
    op = Map(apply("add", apply("exp", X), number(1)))
    before = make(lambda b: b.emit(Map(op.expr), "x", "y"), x=(4, 1), y=(4, 5))
    assert ops(same_results(before, single_steps(before))) == ["Map"]


@settings(max_examples=30, deadline=None)
@given(networks())
def test_random_graphs(graph):
    graph, feeds = with_values(graph)
    after = single_steps(stitch(fuse(graph))).verify()
    check_single(after)
    want, found = interpret(graph, feeds), interpret(after, feeds)
    for name in graph.outputs:
        np.testing.assert_allclose(found[name], want[name], rtol=0, atol=1e-4 * max(1, np.abs(want[name]).max()))


@pytest.mark.parametrize("name", ["nafnet", "swin-t", "mobilevit-s", "vit-s16"])
def test_networks(name):
    model, feeds = network(name, SMALLEST[name])
    types = {key: TensorType(value.shape, value.dtype) for key, value in feeds.items()}
    graph = specialize(first_stage(load(model)), types, {}).graph
    after = single_steps(graph).verify()
    check_single(after)
    assert len(after.nodes) > 1.5 * len(graph.nodes)
    (want,), (found,) = interpret(graph, feeds).values(), interpret(after, feeds).values()
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-4 * np.abs(want).max())
