"""Subgraphs: convex, with one output, covering all nodes, in an order in which they can run."""

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.graph.ir import Graph
from brickrt.ops.operators.move import Transpose, View
from brickrt.plan.assign_layouts import assign_layouts
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.device.device_spec import host_device
from brickrt.plan.layout import image_layout
from brickrt.plan.merging.partition import partition
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import make_plan
from tests.support.graphs.plan_graphs import Sketch, bottlenecks, networks


def model(graph: Graph) -> CostModel:
    device = host_device()
    return CostModel(*assign_layouts(graph, image_layout(device)), device)


@settings(max_examples=60, deadline=None)
@given(networks(), st.integers(1, 4), st.sampled_from([1, 2, 99]))
def test_subgraphs_are_convex_and_have_one_output(graph: Graph, max_layers: int, keep: int):
    m = model(graph)
    parts = partition(m, max_layers, lambda order: min(keep, len(order)))
    assert sorted(k for part in parts for k in part) == list(range(len(m.graph.nodes)))
    written = set(m.graph.inputs) | set(m.graph.constants)
    dag = m.graph.to_networkx()
    for part in parts:
        inside = set(part)
        assert list(part) == sorted(part) and sum(m.node_costs[k].heavy for k in part) <= max(max_layers, 1)
        for k in part[:-1]:
            output = m.graph.nodes[k].output
            assert set(m.graph.consumers[output]) <= inside and output not in m.graph.outputs
        for k in part:
            assert set(m.graph.nodes[k].inputs) <= written | {m.graph.nodes[j].output for j in part if j < k}
            assert nx.ancestors(dag, k) & nx.descendants(dag, part[0]) <= inside
        written.add(m.graph.nodes[part[-1]].output)


@settings(max_examples=40, deadline=None)
@given(networks(), st.sampled_from(["auto", "padded", "memoized", "layerwise"]), st.sampled_from([None, 2, 4]))
def test_plans_of_any_network_hold_together(graph: Graph, strategy: str, brick: int | None):
    made = make_plan(graph, host_device(), PlanOptions(strategy, brick)).verify()
    assert sum(sub.flops for sub in made.subgraphs) == made.graph.flops()
    assert all(sub.modelled_us <= sub.layerwise_us for sub in made.subgraphs) or strategy in ("padded", "memoized")


def kinds(graph: Graph, max_layers: int = 3) -> list[str]:
    """The subgraphs as operator names, layouts left plain so that no reorders are added."""
    m = CostModel(graph, dict.fromkeys(graph.types, "plain"), host_device())
    return ["+".join(m.graph.nodes[k].op.name for k in part) for part in partition(m, max_layers)]


def test_three_convolutions_are_one_subgraph():
    assert kinds(bottlenecks(1)) == ["Conv", "Conv+Map+Conv+Map+Conv+Map+Map"]


def test_views_transposes_and_global_reductions_stand_alone():
    """conv → sum over space → abs → view → transpose → abs"""
    s = Sketch()
    y = s.map("abs", s.reduce(s.conv(s.input(1, 3, 8, 8), 8), 2, 3))
    y = s.add(Transpose((1, 0)), s.add(View((8, 1)), y))
    s.map("abs", y)
    assert kinds(s.graph()) == ["Conv", "Reduce", "Map", "View", "Transpose", "Map"]


def test_what_is_broadcast_over_bricks_is_not_recomputed_in_each():
    """Squeeze and excite: x → sum over space → 1×1 → × x. The gate stays outside the product's subgraph."""
    s = Sketch()
    x = s.map("abs", s.conv(s.input(1, 3, 8, 8), 16))
    gate = s.conv(s.reduce(x, 2, 3), 16, 1)
    s.map("mul", x, gate)
    assert kinds(s.graph()) == ["Conv+Map", "Reduce", "Conv", "Map"]


def test_a_product_takes_in_only_elementwise_work_on_its_rows():
    """abs → matmul → abs → matmul: the second product does not take in the first."""
    s = Sketch()
    y = s.matmul(s.map("abs", s.input(1, 64, 32)), 32)
    s.matmul(s.map("abs", y), 32)
    assert kinds(s.graph()) == ["Map+MatMul", "Map+MatMul"]


def test_norms_over_the_last_axis_join_products():
    s = Sketch()
    x = s.input(1, 64, 32)
    s.matmul(s.map("sub", x, s.reduce(x, 2)), 32)
    assert kinds(s.graph()) == ["Reduce+Map+MatMul"]


@pytest.mark.parametrize("max_layers", [1, 2, 3])
def test_heavy_layers_are_counted(max_layers: int):
    s = Sketch()
    y = s.input(1, 8, 16, 16)
    for _ in range(6):
        y = s.conv(y, 8)
    assert kinds(s.graph(), max_layers) == ["+".join(["Conv"] * max_layers)] * (6 // max_layers)
