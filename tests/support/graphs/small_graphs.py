"""Small layer graphs written operator by operator, and the check that a pass leaves their results alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from brickrt.graph.builder import Builder
from brickrt.graph.ir import Graph
from brickrt.ops.expr import Expr, apply, arg, const
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.types import TensorType
from tests.support.graphs.by_definition import interpret

F32 = np.dtype(np.float32)
X = arg(0, F32)
Y = arg(1, F32)


def number(value: float) -> Expr:
    """A float32 constant in an expression."""
    return const(value, F32)


RELU = Map(apply("max", X, number(0)))
ADD, MUL = Map(apply("add", X, Y)), Map(apply("mul", X, Y))


def array(*shape: int, seed: int = 0) -> np.ndarray:
    """Normally distributed float32 elements, the same for the same shape and seed."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def conv3(b: Builder, x: str, channels: int, seed: int = 1, bias: bool = False) -> str:
    """A 3×3 convolution that keeps height and width, with random constant weights."""
    weights = b.constant(array(channels, b.type(x).shape[1], 3, 3, seed=seed), "w")
    op = Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), bias=bias)
    extra = [b.constant(array(channels, seed=seed + 1), "b")] if bias else []
    return b.emit(op, x, weights, *extra)


def make(build: Callable[[Builder], str | tuple[str, ...]], **inputs: tuple[int, ...]) -> Graph:
    """The graph that `build` emits over float32 inputs of the given shapes."""
    b = Builder(reserved=inputs)
    for name, shape in inputs.items():
        b.types[name] = TensorType(shape, F32)
    outputs = build(b)
    names = (outputs,) if isinstance(outputs, str) else outputs
    return Graph(tuple(b.nodes), b.types, b.constants, tuple(inputs), names).verify()


def same_results(before: Graph, after: Graph, tolerance: float = 1e-5) -> Graph:
    """Asserts that two graphs compute the same outputs; returns the second."""
    after.verify()
    feeds = {name: array(*before.types[name].shape, seed=7) for name in before.inputs}
    expected = interpret(before, feeds)
    actual = interpret(after, {name: feeds[name] for name in after.inputs})
    assert list(actual) == list(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=tolerance, atol=tolerance)
    return after


def ops(graph: Graph) -> list[str]:
    """Names of the operators of a graph, in order."""
    return [node.op.name for node in graph.nodes]
