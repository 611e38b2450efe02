"""Sums and squared differences over the same elements read partial moments of them, and are known at the same time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickrt.graph.ir import Graph
from brickrt.ops.expr import Expr, apply, arg, cast, const
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.partial_moments import PartialMoments
from brickrt.ops.operators.reduce import Reduce
from brickrt.plan.assign_layouts import assign_layouts
from brickrt.plan.device.device_spec import device_named
from brickrt.plan.layout import image_layout
from brickrt.plan.merging.split_moments import split_moments
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import make_plan
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.plan_graphs import Sketch
from tests.support.task_checks import SERVER

SMALL = replace(SERVER, l2=2**10)
F32 = np.dtype(np.float32)


def square(x: Expr, y: Expr) -> Expr:
    return apply("mul", apply("sub", x, y), apply("sub", x, y))


def norm(s: Sketch, x: str, axes: tuple[int, ...], keepdims: bool = True, dtype: np.dtype = F32) -> str:
    """
    x ─┬─ sum · 1/8 ─┐
       └─────────────┴─ sum of squares
    """
    element = cast(arg(0, s.types[x].dtype), dtype)
    scaled = apply("mul", arg(0, dtype), const(0.125, dtype))
    mean = s.add(Reduce("sum", axes, True, None if s.types[x].dtype == dtype else element, scaled), x)
    return s.add(Reduce("sum", axes, keepdims, square(element, arg(1, dtype))), x, mean)


def split(graph: Graph, spec=SMALL) -> Graph:
    """The graph with its moments split, which computes the same."""
    placed, layouts = assign_layouts(graph, image_layout(spec))
    found, places = split_moments(placed, layouts, spec)
    assert places.keys() >= found.verify().types.keys()
    rng = np.random.default_rng(0)
    values = {n: 3 + rng.standard_normal(graph.types[n].shape).astype(graph.types[n].dtype) for n in graph.inputs}
    constants = {n: rng.standard_normal(graph.types[n].shape).astype(F32) for n in graph.constants}
    wanted = interpret(replace(placed, constants=constants), values)
    got = interpret(replace(found, constants=found.constants | constants), values)
    for name, want in wanted.items():
        np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-5)
    return found


def moments(graph: Graph) -> list[str]:
    """What partial moments are taken of."""
    return [node.inputs[0] for node in graph.nodes if isinstance(node.op, PartialMoments)]


def reads(graph: Graph, name: str) -> int:
    return len(graph.consumers[name])


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((2, 3, 9, 70), (2, 3)),
        ((1, 2, 3, 5, 1200), (2, 3, 4)),
        ((2, 3, 9, 70), (0, 2, 3)),
        ((2, 3, 9, 70), (1, 2, 3)),
        ((2, 3, 9, 70), (3,)),
        ((2, 3, 9, 70), (1, 3)),
        ((2, 3, 700), (2,)),
        ((4, 700), (1,)),
        ((1500,), (0,)),
    ],
)
def test_all_axes_with_the_last_one(shape, axes, keepdims):
    s = Sketch()
    norm(s, s.input(*shape), axes, keepdims)
    after = split(s.graph())
    assert moments(after) == ["x0"] and reads(after, "x0") == 1


def test_blocked_tensors_have_short_segments_and_two_numbers_a_row():
    s = Sketch()
    x = s.conv(s.input(1, 3, 20, 150), 20)
    norm(s, x, (2, 3))
    after = split(s.graph())
    (node,) = (n for n in after.nodes if isinstance(n.op, PartialMoments))
    assert node.op.length == 64 and after.out(node).shape == (1, 20, 20, 6)
    rows = [n for n in after.nodes if isinstance(n.op, Reduce) and n.op.axes == (3,)]
    assert [after.out(n).shape for n in rows] == [(1, 20, 20, 1)] * 2


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_types(dtype):
    s = Sketch()
    norm(
        s, s.input(1, 3, 20, 150, dtype=np.dtype(dtype)), (2, 3), dtype=F32 if dtype == np.float16 else np.dtype(dtype)
    )
    assert moments(split(s.graph())) == ["x0"]


def test_means_of_groups():
    """What the differences are from is computed from sums, and sums of other readers come with them."""
    s = Sketch()
    x = s.input(2, 6, 9, 70)
    total = s.reduce(x, 2, 3)
    mean = s.add(Reduce("sum", (1,), True, None, apply("div", arg(0, F32), const(3780, F32))), total)
    s.add(Reduce("sum", (2, 3), True, square(arg(0, F32), arg(1, F32))), x, mean)
    pool = s.add(Reduce("sum", (2, 3), False, None, apply("sqrt", apply("abs", arg(0, F32)))), x)
    after = split(s.graph(s.nodes[-2].output, pool))
    assert moments(after) == ["x0"] and reads(after, "x0") == 1


def refused(how: str) -> Graph:
    s = Sketch()
    x = s.input(2, 6, 9, 4 if how == "short rows" else 70)
    mean = s.reduce(x, 2, 3)
    if how == "sums alone":
        return s.graph()
    if how == "other axes":
        s.add(Reduce("sum", (1, 2, 3), True, square(arg(0, F32), arg(1, F32))), x, s.input(2, 1, 1, 1))
        return s.graph(mean, s.nodes[-1].output)
    if how == "not the last axis":
        norm(s, x, (2,))
        return s.graph(mean, s.nodes[-1].output)
    if how == "differences of pixels":
        s.add(Reduce("sum", (2, 3), True, square(arg(0, F32), arg(1, F32))), x, s.input(1, 6, 9, 1))
        return s.graph(mean, s.nodes[-1].output)
    s.add(Reduce("sum", (2, 3), True, square(arg(0, F32), arg(1, F32))), x, s.add(Map(arg(0, F32)), mean))
    return s.graph()


CASES = ["sums alone", "other axes", "not the last axis", "differences of pixels", "short rows"]


@pytest.mark.parametrize("how", CASES)
def test_what_stays(how):
    assert not moments(split(refused(how)))


def test_small_tensors_stay():
    s = Sketch()
    norm(s, s.input(2, 3, 9, 70), (2, 3))
    assert not moments(split(s.graph(), SERVER))


def test_plans_for_gpus_have_none():
    s = Sketch()
    norm(s, s.input(2, 64, 90, 700), (2, 3))
    assert not moments(make_plan(s.graph(), device_named("h200"), PlanOptions()).graph)
    assert moments(make_plan(s.graph(), SERVER, PlanOptions()).graph)
