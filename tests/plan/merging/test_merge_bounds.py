"""What bounds leave out of the search for merges would not have been chosen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickrt.graph.ir import Graph
from brickrt.ops.operators.move import Take
from brickrt.plan.device.device_spec import PRESETS, DeviceSpec, host_device
from brickrt.plan.merging import propose_merges
from brickrt.plan.merging.merge_bounds import MergeBounds
from brickrt.plan.plan import make_plan
from tests.support.graphs.plan_graphs import Sketch, bottlenecks, gated_depthwise
from tests.support.task_checks import SERVER

DEVICES = {"server": SERVER, "host": host_device(), "gpu": PRESETS["h200"]}


def without_bounds(cost: object, order: list[int]) -> MergeBounds:
    """Bounds that leave nothing out: merged, all takes no time."""
    return MergeBounds([1.0] * len(order), [-1e300] * len(order))


def decisions(graph: Graph, device: DeviceSpec) -> list[tuple[object, ...]]:
    return [(s.nodes, s.strategy, s.brick, s.band, s.modelled_us) for s in make_plan(graph, device).subgraphs]


def both(graph: Graph, device: DeviceSpec) -> tuple[object, object]:
    """Decisions with bounds, and without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(propose_merges, "merge_bounds", without_bounds)
        searched = decisions(graph, device)
    return decisions(graph, device), searched


@st.composite
def chains(draw: st.DrawFn) -> Graph:
    """Layers one after the other, of an image of up to 1 MiB: some stride, some read half of the channels before."""
    s = Sketch()
    x = s.input(1, draw(st.sampled_from([3, 8, 32])), *[draw(st.sampled_from([24, 57, 96]))] * 2)
    for _ in range(draw(st.integers(2, 7))):
        kind, channels = draw(st.sampled_from(["conv", "strided", "depthwise", "map", "half"])), s.types[x].shape[1]
        if kind == "half" and channels > 3:
            x = s.add(Take((None, tuple(range(channels // 2)), None, None), 0), x)
        elif kind == "depthwise":
            x = s.conv(x, channels, 3, groups=channels)
        elif kind == "map":
            x = s.map("abs", x)
        else:
            kernel, stride = draw(st.sampled_from([1, 3])), 1 + (kind == "strided")
            x = s.conv(x, draw(st.sampled_from([4, 16, 48])), kernel, stride)
    return s.graph()


@given(chains(), st.sampled_from([*DEVICES]))
def test_decisions_are_those_of_a_whole_search(graph: Graph, device: str):
    bounded, searched = both(graph, DEVICES[device])
    assert bounded == searched


@pytest.mark.parametrize("device", DEVICES)
def test_blocks_of_networks_are_merged_as_by_a_whole_search(device: str):
    for graph in (bottlenecks(2), gated_depthwise(), gated_depthwise(64)):
        bounded, searched = both(graph, DEVICES[device])
        assert bounded == searched


def test_layers_bound_by_arithmetic_are_not_searched(monkeypatch):
    s = Sketch()
    x = s.input(1, 256, 32, 32)
    for _ in range(3):
        x = s.conv(x, 256)
    monkeypatch.setattr(propose_merges, "_search", None)
    made = make_plan(s.graph(), SERVER)
    assert {sub.strategy for sub in made.subgraphs} == {"layerwise"}
    assert "merging saves too little even without halos" in made.subgraphs[-1].why
