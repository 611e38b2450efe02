"""Reductions over rows that keep columns read blocks of rows that are reduced already."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickrt.graph.ir import Graph
from brickrt.ops.expr import apply, arg, cast, const
from brickrt.ops.operators.pool import Pool
from brickrt.ops.operators.reduce import Reduce
from brickrt.plan.merging.split_profiles import split_profiles
from tests.support.cpu.split_graphs import checked_split
from tests.support.graphs.plan_graphs import Sketch
from tests.support.task_checks import SERVER

SMALL = replace(SERVER, l2=2**10)
F32 = np.dtype(np.float32)
HALF = apply("mul", arg(0, F32), const(0.5, F32))


def split(graph: Graph) -> Graph:
    """The split graph, which computes the same."""
    return checked_split(split_profiles, graph, SMALL, rtol=1e-5, atol=1e-5)


def pools(graph: Graph) -> int:
    return sum(isinstance(node.op, Pool) for node in graph.nodes)


@pytest.mark.parametrize("combine", ["sum", "max"])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(
    ("shape", "axes"), [((2, 3, 601, 7), (2,)), ((1, 3, 35, 4, 5), (2, 3)), ((1, 3, 64, 4, 5), (2,))]
)
def test_blocks_of_rows(combine: str, keepdims: bool, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """601 rows are 38 blocks, and these are three."""
    s = Sketch()
    y = s.add(Reduce(combine, axes, keepdims, post=HALF), s.input(*shape))
    assert pools(split(s.graph(y))) == 1 + (shape[2] == 601)


def test_elements_that_are_computed_first() -> None:
    s = Sketch()
    y = s.add(Reduce("sum", (2,), True, apply("mul", arg(0, F32), arg(0, F32))), s.input(1, 3, 40, 33))
    assert pools(split(s.graph(y))) == 1


@pytest.mark.parametrize(
    ("shape", "op"),
    [
        ((1, 1, 40, 5), Reduce("sum", (2,), True)),  # fits in a cache
        ((1, 3, 31, 64), Reduce("sum", (2,), True)),  # has few rows
        ((1, 3, 64, 64), Reduce("sum", (2, 3), True)),  # keeps no columns
        ((1, 3, 64, 64), Reduce("sum", (3,), True)),
        ((1, 3, 64, 64), Reduce("min", (2,), True)),
        ((1, 3, 64, 64), Reduce("sum", (2,), True, cast(arg(0, F32), "float16"))),
    ],
)
def test_what_stays(shape: tuple[int, ...], op: Reduce) -> None:
    s = Sketch()
    assert not pools(split(s.graph(s.add(op, s.input(*shape)))))
