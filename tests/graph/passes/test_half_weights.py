"""Weights of float16 models: which products read them in two bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from brickrt.graph.builder import Builder
from brickrt.graph.ir import Graph
from brickrt.graph.passes.fuse import fuse, fuse_half_epilogues
from brickrt.graph.passes.half_weights import WIDE_WEIGHTS_SHARE, WINOGRAD_BYTES, narrow_weights
from brickrt.ops.expr import apply, arg, cast
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.small_graphs import RELU, array, conv3, make, ops

F16, F32 = np.dtype(np.float16), np.dtype(np.float32)
HALF = Map(cast(arg(0, F32), F16))


def exact(*shape: int, seed: int = 0) -> np.ndarray:
    return array(*shape, seed=seed).astype(F16).astype(F32)


def weights(graph: Graph) -> list[str]:
    return [graph.ins(node)[1].dtype.name for node in graph.nodes if isinstance(node.op, Conv | MatMul)]


def product(b: Builder, x: str, weight: np.ndarray) -> str:
    return b.emit(MatMul(), x, b.constant(weight, "w"))


def test_weights_that_float16_holds_are_narrowed_in_models_of_float16():
    """One product with weights of a float16 model, one with weights that are none of it."""

    def build(b: Builder) -> str:
        return b.emit(HALF, product(b, product(b, "x", exact(8, 9)), array(9, 4)))

    before = make(build, x=(5, 8))
    after = narrow_weights(before)
    assert weights(after) == ["float16", "float32"]
    feeds = {"x": array(5, 8)}
    for name, value in interpret(before, feeds).items():
        np.testing.assert_array_equal(interpret(after, feeds)[name], value)


def test_models_of_float32_are_left_alone():
    graph = make(lambda b: product(b, "x", exact(8, 9)), x=(5, 8))
    assert narrow_weights(graph) is graph


def test_what_others_read_stays_wide():
    """x times w, and w itself: both outputs."""

    def build(b: Builder) -> tuple[str, str, str]:
        w = b.constant(exact(8, 9), "w")
        y = b.emit(MatMul(), "x", w)
        return y, b.emit(RELU, w), b.emit(HALF, y)

    assert weights(narrow_weights(make(build, x=(5, 8)))) == ["float32"]


def test_windows_with_many_pixels_stay_wide_as_far_as_memory_goes():
    """A convolution of many pixels and few weights, one of few pixels and many weights, a large matrix."""

    def build(b: Builder) -> str:
        x = conv3(b, "x", 4)
        x = b.emit(Conv((3, 3), (4, 4), (1, 1), (0, 0), (0, 0)), x, b.constant(exact(64, 4, 3, 3), "many"))
        return b.emit(HALF, b.emit(Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0)), x, b.constant(exact(256, 64, 1, 1))))

    before = make(build, x=(1, 3, 31, 31))
    first = before.nodes[0].inputs[1]
    before = replace(before, constants=before.constants | {first: exact(4, 3, 3, 3)})
    after = narrow_weights(before)
    assert weights(after) == ["float32", "float16", "float16"]
    narrow = sum(a.size for a in before.constants.values()) * F16.itemsize
    assert 4 * 3 * 9 * (WINOGRAD_BYTES - F16.itemsize) <= WIDE_WEIGHTS_SHARE * narrow < 64 * 4 * 9 * WINOGRAD_BYTES


def test_steps_of_float16_are_computed_where_a_product_is_stored():
    """x·w rounded to float16, plus a residual of float16."""

    def build(b: Builder) -> str:
        residual = b.emit(HALF, "x")
        y = b.emit(HALF, product(b, "x", exact(8, 8)))
        return b.emit(Map(apply("add", arg(0, F16), arg(1, F16))), y, residual)

    before = fuse(make(build, x=(5, 8)))
    after = fuse_half_epilogues(before)
    assert ops(before) != ops(after) and [*map(type, (n.op for n in after.nodes))].count(MatMul) == 1
    assert not any(isinstance(node.op, Map) and node.inputs[0] != "x" for node in after.nodes)
    feeds = {"x": array(5, 8)}
    for name, value in interpret(before, feeds).items():
        assert value.dtype == F16
        np.testing.assert_array_equal(interpret(after, feeds)[name], value)
