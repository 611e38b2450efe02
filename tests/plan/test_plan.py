"""The plan as a record: checked, printed, written as JSON, and made quickly."""

import dataclasses
import json
import time

import pytest

from brickrt.graph.ir import Graph
from brickrt.plan.device.device_spec import PRESETS, host_device
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import make_plan
from tests.support.graphs.plan_graphs import Sketch, bottlenecks


@pytest.mark.parametrize("device", [host_device(), PRESETS["h200"]], ids=["cpu", "cuda"])
def test_json_and_text_show_every_subgraph(device):
    made = make_plan(bottlenecks(1), device).verify()
    record = json.loads(json.dumps(made.to_dict()))
    assert len(record["subgraphs"]) == len(made.subgraphs) and record["device"]["kind"] == device.kind
    assert {"ops", "strategy", "brick", "delta", "rho", "bricks", "tasks", "flops", "footprint_bytes", "why"} <= set(
        record["subgraphs"][0]
    )
    assert "onnx0" in record["subgraphs"][0]["ops"]
    assert len(str(made).splitlines()) == 1 + len(made.subgraphs)
    assert sum(s.flops for s in made.subgraphs) == made.graph.flops()


def test_plans_are_deterministic():
    made = [make_plan(bottlenecks(2), host_device()) for _ in range(2)]
    assert made[0].subgraphs == made[1].subgraphs


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda p: p.subgraphs[::-1], "before it is written"),
        (lambda p: p.subgraphs[:-1], "every node once"),
        (lambda p: (p.subgraphs[0], *p.subgraphs), "runs twice"),
        (lambda p: (dataclasses.replace(p.subgraphs[0], node_bricks=((1,),)), *p.subgraphs[1:]), "another rank"),
    ],
)
def test_verify_names_what_is_off(spoil, message: str):
    made = make_plan(bottlenecks(1), host_device(), PlanOptions("layerwise"))
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(made, subgraphs=tuple(spoil(made))).verify()


def test_verify_sees_a_second_output():
    s = Sketch()
    y = s.conv(s.input(1, 3, 8, 8), 16)
    s.map("add", s.map("abs", y), y)
    made = make_plan(s.graph(), host_device(), PlanOptions("layerwise"))
    first, second, *rest = made.subgraphs
    both = dataclasses.replace(second, nodes=(0, 1), node_bricks=first.node_bricks + second.node_bricks)
    with pytest.raises(ValueError, match="'t0' leaves it"):
        dataclasses.replace(made, subgraphs=(both, *rest)).verify()


@pytest.mark.parametrize("strategy", ["auto", "padded", "memoized", "layerwise"])
def test_planning_stays_quick(strategy: str):
    """A thousand nodes; the bound is loose, for machines that do other things too."""
    graph = bottlenecks(140)
    assert len(graph.nodes) > 900
    start = time.process_time()
    make_plan(graph, host_device(), PlanOptions(strategy))
    assert time.process_time() - start < 5


@pytest.mark.parametrize("device", [host_device(), PRESETS["h200"]], ids=["cpu", "cuda"])
@pytest.mark.parametrize("blocks", [0, 1, 100])
def test_repr_fits_a_screen(blocks, device):
    options = PlanOptions(brick=8) if blocks == 1 else None
    made = make_plan(bottlenecks(blocks), device, options)
    lines = repr(made).splitlines()
    assert len(lines) <= 20 and max(map(len, lines)) <= 100
    assert f"{len(made.graph.nodes)} nodes in {len(made.subgraphs)} subgraphs" in lines[0]
    for strategy in {s.strategy for s in made.subgraphs}:
        assert f"{sum(s.strategy == strategy for s in made.subgraphs)} {strategy}" in lines[0]
    assert device.name in lines[1]
    assert ("brick 8" in lines[2]) == (blocks == 1)


def test_repr_shows_the_subgraphs_that_take_longest():
    made = make_plan(bottlenecks(10), host_device())
    longest = max(range(len(made.subgraphs)), key=lambda n: made.subgraphs[n].modelled_us)
    assert str(longest) in [line.split()[0] for line in repr(made).splitlines()]


def test_repr_of_a_plan_of_nothing():
    assert repr(make_plan(Graph((), {}), host_device())).startswith("Plan of 0 nodes in 0 subgraphs (none)")


def test_repr_of_a_graph_is_one_short_line():
    graph = bottlenecks(1)
    nbytes = sum(array.nbytes for array in graph.constants.values())
    assert repr(graph) == f"Graph(nodes={len(graph.nodes)}, inputs=1, outputs=1, constant_bytes={nbytes})"
