"""Fused bricks: where their intermediates lie, which bricks fit shared memory, and what they save."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickrt import zoo
from brickrt.graph.errors import BrickError
from brickrt.graph.ir import Graph
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.cuda.shared_memory import FUSED_IN_PLACE, fused_room
from brickrt.ops.types import TensorType
from brickrt.plan.device.device_spec import PRESETS, DeviceSpec
from brickrt.plan.geometry.brick_packing import pack_brick
from brickrt.plan.options import PlanOptions, check_options
from brickrt.plan.plan import make_plan
from brickrt.runtime.analysis.modelled_traffic import locality
from brickrt.runtime.lowering.lower import lower
from tests.support.graphs.plan_graphs import Sketch
from tests.support.task_checks import SERVER

H200 = PRESETS["h200"]
SMALLER = 8  # times along each axis than the image of 2048² that traffic is asked for


def nafnet(size: int) -> Graph:
    source = load(zoo.build("nafnet", size=size))
    return specialize(first_stage(source), {"x": TensorType((1, 3, size, size), np.dtype(np.float32))}, {}).graph


def smaller(device: DeviceSpec) -> DeviceSpec:
    """The device with as much less cache as a smaller image has fewer pixels."""
    return replace(device, l2=device.l2 // SMALLER**2)


def test_tensors_that_never_live_together_share_bytes():
    """x → a → b → c → d → y, where y reads a too: b and d share."""
    sketch = Sketch()
    a = sketch.conv(sketch.input(1, 8, 16, 16), 8)
    b = sketch.map("neg", a)
    c = sketch.map("exp", b)
    y = sketch.map("mul", sketch.map("neg", c), a)
    graph = sketch.graph(y)
    sizes = {node.output: 640 for node in graph.nodes[:-1]}
    offsets, total = pack_brick(graph, range(len(graph.nodes)), sizes)
    places = [offsets[node.output] for node in graph.nodes[:-1]]
    assert places[1] == places[3] and len({*places}) == 3
    assert total == 3 * 640


def test_traffic_of_nafnet_is_two_fused_passes_a_block():
    """Layer by layer an image of 2048² moves 46 GB in float32; fused at most 14."""
    graph = nafnet(2048 // SMALLER)
    moved = {}
    for strategy in ("layerwise", "fused"):
        tasks = lower(make_plan(graph, smaller(H200), PlanOptions(strategy, brick=16)).verify())
        moved[strategy] = SMALLER**2 * locality(tasks).levels["l2"].moved / 1e9
    assert moved["fused"] <= 14 and moved["layerwise"] >= 3 * moved["fused"]
    fused = [s for s in tasks.plan.subgraphs if s.strategy == "fused"]
    assert sum(len(s.partial_reductions) for s in fused) == 4
    assert (
        all(0 < tasks.fused_bytes[n] <= fused_room(H200.l1, FUSED_IN_PLACE) for n in tasks.fused_bytes)
        and not tasks.scratch_bytes
    )


@pytest.mark.parametrize("name", ["h200", "a100", "l40s"])
def test_bricks_fit_the_shared_memory_of_each_device(name):
    device = PRESETS[name]
    tasks = lower(make_plan(nafnet(128), device, PlanOptions("fused")).verify())
    assert len(tasks.fused_bytes) >= 8
    assert max(tasks.fused_bytes.values()) <= fused_room(device.l1, FUSED_IN_PLACE)


def test_auto_fuses_where_products_are_quick():
    """In float32 arithmetic takes as long as the memory; on tensor cores whole blocks are fused."""
    graph, longest = nafnet(2048), {}
    for precision in ("fp32", "tf32"):
        plan = make_plan(graph, H200, PlanOptions(precision=precision))
        longest[precision] = max(len(s.members) for s in plan.subgraphs if s.strategy == "fused")
        assert all(s.modelled_us <= s.layerwise_us for s in plan.subgraphs)
    assert longest["tf32"] >= longest["fp32"] >= 5


def test_a_device_without_room_for_any_brick_fuses_nothing():
    plan = make_plan(nafnet(32), replace(H200, l1=18 << 10), PlanOptions("fused")).verify()
    assert all(s.strategy == "layerwise" for s in plan.subgraphs)
    assert any("not fused" in s.why for s in plan.subgraphs)


def test_the_cpu_has_no_fused_bricks():
    with pytest.raises(BrickError, match=r"^strategy 'fused' is for GPUs"):
        check_options(SERVER, "fp32", "fused")
