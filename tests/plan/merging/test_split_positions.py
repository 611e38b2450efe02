"""Sums over all positions of a flattened image, and products along them, are of parts first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickrt.graph.ir import Graph
from brickrt.ops.expr import apply, arg
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.reduce import Reduce
from brickrt.plan.assign_layouts import assign_layouts
from brickrt.plan.layout import image_layout
from brickrt.plan.merging.split_positions import PARTS_BYTES, split_positions
from tests.support.cpu.split_graphs import checked_split
from tests.support.graphs.plan_graphs import Sketch
from tests.support.task_checks import SERVER

SMALL = replace(SERVER, l2=2**10, l3=2**10)
F32 = np.dtype(np.float32)
X, Y = arg(0, F32), arg(1, F32)


def split(graph: Graph) -> Graph:
    """The graph with its sums split, which computes the same."""
    return checked_split(split_positions, graph, SMALL, rtol=1e-4, atol=1e-3)


def deepest(graph: Graph) -> int:
    """The most positions that one result is of."""
    sums = [graph.ins(n)[0].shape[-1] for n in graph.nodes if isinstance(n.op, MatMul)]
    return max(sums + [graph.ins(n)[0].shape[n.op.axes[-1]] for n in graph.nodes if isinstance(n.op, Reduce)])


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("combine", ["sum", "max"])
@pytest.mark.parametrize(
    ("shape", "axes"), [((1, 2, 7, 75 * 91), (3,)), ((7, 75 * 91), (1,)), ((2, 3, 75 * 91), (1, 2))]
)
def test_sums_over_positions(shape, axes, combine, keepdims):
    s = Sketch()
    squared = apply("mul", X, X)
    s.add(Reduce(combine, axes, keepdims, squared, apply("mul", X, X)), s.input(*shape))
    found = split(s.graph())
    assert len(found.nodes) == 3 and deepest(found) < 6825


@pytest.mark.parametrize("other", [(1, 7, 5040), (1, 7, 1), (7, 1), ()])
def test_operands_of_a_sum_are_cut_alike(other):
    s = Sketch()
    s.add(Reduce("sum", (2,), True, apply("sub", X, Y)), s.input(1, 7, 5040), s.input(*other))
    assert deepest(split(s.graph())) < 5040


@pytest.mark.parametrize("epilogue", [False, True])
@pytest.mark.parametrize(
    ("a", "b"), [((2, 5, 6825), (2, 6825, 7)), ((1, 2, 5, 4096), (4096, 7)), ((5, 6825), (3, 6825, 7))]
)
def test_products_along_positions(a, b, epilogue):
    s = Sketch()
    names = [s.input(*a), s.input(*b), *([s.input(1)] if epilogue else [])]
    s.add(MatMul(epilogue=apply("mul", X, Y) if epilogue else None), *names)
    found = split(s.graph())
    assert deepest(found) < 4096


@pytest.mark.parametrize(
    ("a", "b"), [((5, 4093), (4093, 7)), ((5, 2048), (2048, 7)), ((600, 4096), (4096, 7)), ((5, 7919), (7919, 7))]
)
def test_few_positions_prime_numbers_of_them_and_large_results_stay(a, b):
    s = Sketch()
    s.add(MatMul(), s.input(*a), s.input(*b))
    assert len(split(s.graph()).nodes) == 1


def test_products_of_parts_take_little_memory():
    s = Sketch()
    s.add(MatMul(), s.input(48, 2**26), s.input(2**26, 48))
    placed, layouts = assign_layouts(s.graph(), image_layout(SERVER))
    found, _ = split_positions(placed, layouts, SERVER)
    (product,) = [n for n in found.nodes if isinstance(n.op, MatMul)]
    assert found.out(product).nbytes <= PARTS_BYTES


HEADS = (1, 8, 48, 4096), (1, 8, 4096, 48)  # 6 MiB each
SQUARE = (16, 2**16), (2**16, 16)


@pytest.mark.parametrize(
    ("shapes", "l3", "cores", "split"),
    [
        (HEADS, 2**25, 2, False),  # in the cache: copies of parts would only be more
        (HEADS, 2**23, 2, True),
        (HEADS, 2**25, 64, False),  # 8 heads of 12 pieces
        (SQUARE, 2**25, 2, False),
        (SQUARE, 2**25, 64, True),  # 4 pieces
    ],
)
def test_products_are_split_where_cores_or_caches_have_too_little(shapes, l3, cores, split):
    s = Sketch()
    s.add(MatMul(), *(s.input(*shape) for shape in shapes))
    speeds = {level: cores / 2 * gbps for level, gbps in SERVER.bandwidth.items()}
    device = replace(SERVER, l2=2**20, l3=l3, cores=cores, bandwidth=speeds)
    placed, layouts = assign_layouts(s.graph(), image_layout(device))
    found, _ = split_positions(placed, layouts, device)
    assert (len(found.nodes) > 1) == split
