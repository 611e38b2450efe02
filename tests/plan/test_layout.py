"""Layouts, on graphs small enough to see every tensor; 16 lanes unless said otherwise."""

import numpy as np
import pytest

from brickrt.graph.ir import Graph
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.move import Concat, Reorder, Take, View
from brickrt.ops.operators.pool import Pool
from brickrt.plan.assign_layouts import assign_layouts
from brickrt.plan.device.device_spec import PRESETS
from brickrt.plan.layout import ImageLayout, image_layout
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.plan_graphs import F32, Sketch, bottlenecks, gated_depthwise

STYLE = ImageLayout("blocked", 16, 4, "float32 float64")


def assigned(sketch: Sketch, *outputs: str) -> tuple[Graph, dict[str, str]]:
    graph, layouts = assign_layouts(sketch.graph(*outputs), STYLE)
    graph.verify()
    assert set(layouts) == set(graph.types)
    assert all(layouts[name] == "plain" for name in graph.inputs + graph.outputs)
    return graph, dict(layouts)


def reorders(graph: Graph) -> list[tuple[str, str]]:
    return [(n.inputs[0], n.output) for n in graph.nodes if isinstance(n.op, Reorder)]


def reader(graph: Graph, name: str) -> tuple[str, ...]:
    """What node `name` reads."""
    return next(n.inputs for n in graph.nodes if n.name == name)


def test_an_output_keeps_its_name_and_is_plain():
    """x (3 channels) → conv → y: the convolution reads x as it is and writes "y:blocked"."""
    s = Sketch()
    y = s.conv(s.input(1, 3, 8, 8), 32)
    graph, layouts = assigned(s)
    assert reorders(graph) == [(f"{y}:blocked", y)]
    assert layouts[f"{y}:blocked"] == "blocked" and graph.outputs == (y,)


def test_many_channels_or_groups_are_read_blocked():
    s = Sketch()
    s.conv(s.input(1, 24, 8, 8), 32)
    s.conv(s.input(1, 4, 8, 8), 4, groups=4)
    graph, _ = assigned(s, "t0", "t1")
    assert reorders(graph)[0] == ("x0", "x0→blocked") and ("x1", "x1→blocked") in reorders(graph)


def test_a_tensor_is_reordered_once():
    """x → two convolutions; their sum is an output, read plain again by a view."""
    s = Sketch()
    x = s.input(1, 32, 8, 8)
    y = s.map("add", s.conv(x, 32), s.conv(x, 32, 1))
    s.add(View((1, 32 * 64)), y)
    graph, _ = assigned(s, y, "t3")
    assert reorders(graph) == [("x0", "x0→blocked"), (f"{y}:blocked", y)]
    assert reader(graph, "n3") == (y,)


def test_operands_of_a_blocked_map():
    """conv → + [C,1,1] constant, × [1,C,1,1] constant, + [1,1,H,W] input, + scalar."""
    s = Sketch()
    y = s.conv(s.input(1, 3, 8, 8), 32)
    y = s.map("add", y, s.constant(32, 1, 1))
    y = s.map("mul", y, s.constant(1, 32, 1, 1))
    y = s.map("add", y, s.input(1, 1, 8, 8))
    y = s.map("add", y, s.constant())
    y = s.map("add", y, s.input(32, 1, 1))
    graph, layouts = assigned(s)
    lifted, whole, plane, scalar, vector = (reader(graph, f"n{k}")[1] for k in range(1, 6))
    assert graph.types[lifted].shape == (1, 32, 1, 1) and layouts[lifted] == "blocked" and lifted in graph.constants
    assert (whole, layouts[whole]) == ("c2", "blocked")
    assert (plane, layouts[plane]) == ("x1", "plain") and layouts[scalar] == "plain"
    assert graph.types[vector].shape == (1, 32, 1, 1) and layouts[vector] == "blocked"


def test_a_constant_read_in_both_layouts_has_two_names():
    s = Sketch()
    c = s.constant(1, 32, 8, 8)
    s.map("add", s.conv(s.input(1, 3, 8, 8), 32), c)
    s.map("add", s.input(1, 32, 8, 8), c)
    graph, layouts = assigned(s, "t1", "t2")
    first, second = reader(graph, "n1")[1], reader(graph, "n2")[1]
    assert (layouts[first], layouts[second]) == ("blocked", "plain") and first != second
    assert {first, second} <= set(graph.constants)


@pytest.mark.parametrize(
    ("axes", "keepdims", "read", "written"),
    [
        ((2, 3), True, "blocked", "blocked"),
        ((3,), True, "blocked", "blocked"),
        ((1,), True, "blocked", "plain"),
        ((1,), False, "plain", "plain"),
        ((2, 3), False, "plain", "plain"),
        ((0,), True, "plain", "plain"),
        ((1, 2, 3), True, "plain", "plain"),
    ],
)
def test_reductions(axes: tuple[int, ...], keepdims: bool, read: str, written: str):
    s = Sketch()
    y = s.reduce(s.conv(s.input(1, 3, 8, 8), 32), *axes, keepdims=keepdims)
    graph, layouts = assigned(s)
    assert layouts[reader(graph, "n1")[0]] == read
    assert layouts[f"{y}:blocked" if written == "blocked" else y] == written


def test_few_channels_are_written_plain():
    """conv to 3 channels → abs, then a convolution that reads them as they are; a blocked sum reads a plane plain."""
    s = Sketch()
    x = s.input(1, 16, 8, 8)
    few = s.map("abs", s.conv(x, 3))
    s.map("mul", s.conv(few, 32), s.conv(x, 1))
    graph, layouts = assigned(s)
    assert [layouts[f"t{k}"] for k in range(4)] == ["plain", "plain", "blocked", "plain"]
    assert reorders(graph) == [("x0", "x0→blocked"), ("t4:blocked", "t4")]


@pytest.mark.parametrize(("channels", "blocked"), [((32, 20), True), ((20, 32), False)])
def test_concat_of_channels_wants_whole_blocks_before_the_last(channels: tuple[int, int], blocked: bool):
    s = Sketch()
    x = s.input(1, 3, 8, 8)
    s.add(Concat(1), s.conv(x, channels[0]), s.conv(x, channels[1]))
    graph, layouts = assigned(s)
    assert (layouts[reader(graph, "n2")[0]] == "blocked") == blocked


@pytest.mark.parametrize(
    ("table", "blocked"),
    [(None, True), (range(16, 40), True), (range(8, 24), False), ((0, 2, 1), False), ((-1, 0), False)],
)
def test_take_of_channels_wants_whole_blocks(table: range | tuple[int, ...] | None, blocked: bool):
    s = Sketch()
    tables = (None, tuple(table) if table else None, tuple(range(4)), None)
    s.add(Take(tables), s.conv(s.input(1, 3, 8, 8), 40))
    graph, layouts = assigned(s)
    assert (layouts[reader(graph, "n1")[0]] == "blocked") == blocked


def test_pools_are_blocked_for_the_kernels_types_only():
    s = Sketch()
    pool = Pool("max", (2, 2), (2, 2), (1, 1), (0, 0), (0, 0))
    s.add(pool, s.input(1, 32, 8, 8))
    s.add(pool, s.input(1, 32, 8, 8, dtype=np.dtype(np.int8)))
    graph, layouts = assigned(s, "t0", "t1")
    assert layouts["t0:blocked"] == "blocked" and reader(graph, "n1") == ("x1",)


def test_flat_networks_stay_plain():
    s = Sketch()
    s.map("abs", s.matmul(s.map("abs", s.input(1, 197, 384)), 384))
    graph, layouts = assigned(s)
    assert not reorders(graph) and set(layouts.values()) == {"plain"}


@pytest.mark.parametrize("style", [STYLE, image_layout(PRESETS["h200"])], ids=lambda s: s.layout)
@pytest.mark.parametrize("graph", [bottlenecks(1, 6, 8), gated_depthwise(6, 8)], ids=["bottleneck", "gated"])
def test_values_are_those_of_the_graph_before(graph: Graph, style: ImageLayout):
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal(c.shape).astype(F32) for name, c in graph.constants.items()}
    graph = Graph(graph.nodes, graph.types, weights, graph.inputs, graph.outputs)
    x = {name: rng.standard_normal(graph.types[name].shape).astype(F32) for name in graph.inputs}
    before, after = interpret(graph, x), interpret(assign_layouts(graph, style)[0].verify(), x)
    for name in graph.outputs:
        np.testing.assert_array_equal(after[name], before[name])


def test_other_types_are_never_blocked():
    s = Sketch()
    x, w = (
        s.input(1, 8, 8, 8, dtype=np.dtype(np.float16)),
        s.constant(8, 8, 1, 1, values=np.zeros((8, 8, 1, 1), np.float16)),
    )
    s.add(Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0)), x, w)
    graph, layouts = assigned(s)
    assert not reorders(graph) and set(layouts.values()) == {"plain"}


def test_on_a_gpu_even_few_channels_are_innermost():
    """Three channels in, two out: both are images of the convolution, and only the graph's ends are plain."""
    s = Sketch()
    y = s.conv(s.input(1, 3, 8, 8), 2)
    graph, layouts = assign_layouts(s.graph(), image_layout(PRESETS["h200"]))
    assert reorders(graph) == [("x0", "x0→last"), (f"{y}:last", y)]
    assert layouts[f"{y}:last"] == layouts["x0→last"] == "last"
