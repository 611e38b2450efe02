"""Plans for GPUs, made without one: layouts, pieces of layers, and the rules of BrickDL §3.3."""

import math
from dataclasses import replace

import pytest

from brickrt.graph.ir import Graph
from brickrt.plan.device.device_spec import PRESETS, DeviceSpec
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import Plan, make_plan
from brickrt.runtime.lowering.lower import lower
from tests.support.graphs.plan_graphs import Sketch, bottlenecks, gated_depthwise

GPUS = pytest.mark.parametrize("gpu", PRESETS.values(), ids=lambda d: d.name)


def plan(graph: Graph, gpu: DeviceSpec, strategy: str = "auto") -> Plan:
    return make_plan(graph, gpu, PlanOptions(strategy)).verify()


@GPUS
@pytest.mark.parametrize("strategy", ["auto", "layerwise", "padded", "memoized", "fused"])
def test_every_strategy_plans_and_lowers(gpu: DeviceSpec, strategy: str):
    for graph in (bottlenecks(2), gated_depthwise(64)):
        made = plan(graph, gpu, strategy)
        tasks = lower(made)
        assert strategy in ("auto", "layerwise") or any(s.strategy == strategy for s in made.subgraphs)
        assert (tasks.recomputed > 0) <= any(s.strategy in ("padded", "fused") for s in made.subgraphs)


@GPUS
@pytest.mark.parametrize(("size", "channels"), [(112, 64), (56, 256), (14, 512), (7, 2048)])
def test_layers_fill_the_gpu(gpu: DeviceSpec, size: int, channels: int):
    """At least two pieces per multiprocessor, where tiles of 16 by 32 allow it."""
    s = Sketch()
    s.conv(s.input(1, channels, size, size), channels, 1)
    made = plan(s.graph(), gpu, "layerwise")
    conv = next(sub for sub in made.subgraphs if made.graph.nodes[sub.nodes[0]].op.name == "Conv")
    most = math.ceil(size * size / 16) * channels // 32
    assert conv.tasks >= min(most // 2, 2 * gpu.cores)
    assert all(edge in (16, 32, 64, 128) or edge == channels for edge in conv.brick[1:2])


@pytest.mark.parametrize("gpu", [PRESETS[name] for name in ("a100", "l40s", "rtx4090")], ids=lambda d: d.name)
def test_a_chain_bound_by_memory_is_merged_and_keeps_enough_bricks(gpu: DeviceSpec):
    made = plan(gated_depthwise(1024), gpu)
    merged = [sub for sub in made.subgraphs if len(sub.nodes) > 1]
    assert merged
    for sub in merged:
        assert sub.footprint_bytes <= gpu.l2 and sub.modelled_us < sub.layerwise_us
        assert sub.strategy in ("fused", "memoized" if sub.delta > gpu.delta_limit else "padded")
        if sub.strategy == "fused":
            continue
        cut = len(
            [axis for axis in (2, 3) if sub.brick[axis] < made.graph.out(made.graph.nodes[sub.nodes[-1]]).shape[axis]]
        )
        assert sub.rho >= max(sub.brick[2:]) ** cut


def test_a_negative_margin_admits_merges_that_are_modelled_to_lose():
    """Up to that share of the layers' time, and no more."""
    most = {}
    for margin in (0.05, -0.1, -0.3):
        device = replace(PRESETS["h200"], margin=margin, l1=32 << 10)  # without room for fused bricks, which win
        made = plan(bottlenecks(2, 256), device)
        most[margin] = max(s.modelled_us / s.layerwise_us for s in made.subgraphs if len(s.nodes) > 1)
    assert most[0.05] < 0.95 + 1e-6 < 1 < most[-0.1] < 1.1 + 1e-6 < most[-0.3] < 1.3 + 1e-6


@GPUS
def test_few_bricks_of_deep_layers_are_not_merged(gpu: DeviceSpec):
    """7×7: even the smallest bricks leave ρ < Bⁿ, and fused ones would each read all weights. What is between the
    layers is fused in bricks of some channels."""
    made = plan(bottlenecks(2, 7, 512), gpu)
    for sub in made.subgraphs:
        layers = [k for k in sub.nodes if made.graph.nodes[k].op.name == "Conv"]
        assert sub.strategy in ("layerwise", "fused") and len(layers) <= 1
        assert sub.strategy == "layerwise" or sub.brick[1] < made.graph.out(made.graph.nodes[sub.nodes[-1]]).shape[1]


@GPUS
def test_blocks_of_mobile_networks_are_cut_along_channels(gpu: DeviceSpec):
    """x → 1×1 → depthwise 3×3 → y, 14×14: a brick of some channels needs those of the layer before alone."""
    s = Sketch()
    x = s.map("abs", s.conv(s.input(1, 3, 14, 14), 96))
    y = s.map("abs", s.conv(s.map("abs", s.conv(x, 576, 1)), 576, groups=576))
    made = plan(s.graph(s.reduce(y, 2, 3)), gpu)
    (both,) = (sub for sub in made.subgraphs if sum(made.graph.nodes[k].op.name == "Conv" for k in sub.nodes) > 1)
    assert both.strategy == "fused" and both.brick[1] < 576


def test_images_are_channels_last_and_ends_plain():
    made = plan(bottlenecks(1), PRESETS["h200"])
    assert set(made.layouts.values()) == {"plain", "last"}
    assert all(made.layouts[name] == "plain" for name in made.graph.inputs + made.graph.outputs)


def test_matrix_units_make_products_cheaper_but_not_grouped_ones():
    graph = bottlenecks(1, 56, 256)
    fp32, tf32 = (
        make_plan(graph, PRESETS["a100"], PlanOptions("layerwise", precision=p)).verify() for p in ("fp32", "tf32")
    )
    costs = [sum(s.modelled_us for s in made.subgraphs) for made in (fp32, tf32)]
    assert costs[1] < 0.7 * costs[0]
    grouped = gated_depthwise(64)
    depthwise = [
        next(s.modelled_us for s in made.subgraphs if getattr(made.graph.nodes[s.nodes[0]].op, "groups", 1) > 1)
        for made in (
            make_plan(grouped, PRESETS["a100"], PlanOptions("layerwise", precision=p)) for p in ("fp32", "tf32")
        )
    ]
    assert depthwise[0] == depthwise[1]


@pytest.mark.parametrize("batch", [1, 8])
@GPUS
def test_sums_over_space_fill_the_gpu(gpu: DeviceSpec, batch: int):
    """Few channels, much space: what is left of it after the first step is cut too."""
    s = Sketch()
    s.reduce(s.conv(s.input(batch, 32, 512, 256), 32, 1), 2, 3)
    made = plan(s.graph(), gpu, "layerwise")
    sums = [sub.tasks for sub in made.subgraphs if made.graph.nodes[sub.nodes[0]].op.name == "Reduce"]
    assert len(sums) == 2 and sums[0] >= 2 * gpu.cores and sums[1] <= batch
