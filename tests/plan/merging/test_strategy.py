"""Which strategy each subgraph gets, and in which bricks."""

import dataclasses
import math

import pytest

from brickrt.graph.ir import Graph
from brickrt.ops.expr import apply, arg
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.move import View
from brickrt.ops.operators.reduce import Reduce
from brickrt.plan.device.device_spec import PRESETS, DeviceSpec, host_device
from brickrt.plan.geometry.bricks import BrickGrid
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import Plan, make_plan
from tests.support.graphs.plan_graphs import F32, Sketch, bottlenecks, gated_depthwise

SERVER = DeviceSpec(
    "two cores of a server", "cpu", "avx512", 2, 16, 32, 2**15, 2**20, 36 * 2**20, 2**34, 160.0,
    {"l2": 128.0, "l3": 50.0, "memory": 20.0}, tau=64,
)  # fmt: skip
FORCED = ("padded", "memoized")


def plan(graph: Graph, strategy: str = "auto", device: DeviceSpec = SERVER, **options: int) -> Plan:
    return make_plan(graph, device, PlanOptions(strategy, **options)).verify()


def conv_flops_share(made: Plan, strategy: str) -> float:
    flops = dict.fromkeys(("all", strategy), 0)
    for s in made.subgraphs:
        for k in s.nodes:
            node = made.graph.nodes[k]
            if isinstance(node.op, Conv):
                work = made.graph.flops([node])
                flops["all"] += work
                flops[strategy] += work * (s.strategy == strategy)
    return flops[strategy] / flops["all"]


@pytest.mark.parametrize("strategy", FORCED)
@pytest.mark.parametrize("brick", [None, 1, 8, 16, 100])
def test_a_forced_strategy_holds_with_the_edge_asked_for(strategy: str, brick: int | None):
    made = plan(bottlenecks(2, 14, 32), strategy, brick=brick) if brick else plan(bottlenecks(2, 14, 32), strategy)
    assert conv_flops_share(made, strategy) == 1.0
    for s in made.subgraphs:
        shape = made.graph.out(made.graph.nodes[s.nodes[-1]]).shape
        assert s.brick[:2] == (1, shape[1]) and s.bricks == len(BrickGrid(shape, s.brick))
        assert brick is None or s.brick[2:] == tuple(min(brick, extent) for extent in shape[2:])


@pytest.mark.parametrize("spatial", [(40,), (20, 24), (8, 12, 10)])
@pytest.mark.parametrize("strategy", [*FORCED, "auto", "layerwise"])
def test_one_two_and_three_dimensions_and_batches(spatial: tuple[int, ...], strategy: str):
    s = Sketch()
    y = s.input(2, 3, *spatial)
    for _ in range(3):
        y = s.conv(y, 16)
    made = plan(s.graph(), strategy)
    for sub in made.subgraphs if strategy in FORCED else ():
        assert sub.strategy == strategy and sub.brick[0] == 1


def test_impossible_bricks_run_layerwise_and_say_so():
    s = Sketch()
    y = s.conv(s.input(1, 3, 8, 8), 16)
    y = s.add(View((1, 16)), s.reduce(y, 2, 3))
    s.matmul(y, 10)
    made = plan(s.graph(), "padded")
    why = {made.graph.nodes[sub.nodes[-1]].op.name: sub.why for sub in made.subgraphs if sub.strategy == "layerwise"}
    assert (
        "needs the whole tensor" in why["Reduce"]
        and "view" in why["View"]
        and "nothing to cut in 1×10" in why["MatMul"]
    )
    assert all(text.startswith("layerwise, not padded: ") for text in why.values())


def test_the_edge_rule_takes_the_most_bricks_up_to_tau():
    """56×56: edge 4 gives 196 bricks, 8 gives 49."""
    device = dataclasses.replace(SERVER, tau=200)
    last = plan(bottlenecks(1), "padded", device).subgraphs[-1]
    assert last.brick == (1, 256, 4, 4) and last.rho == 196
    assert plan(bottlenecks(1), "padded").subgraphs[-1].brick == (1, 256, 8, 8)


def test_memoized_bricks_are_of_each_nodes_own_output():
    s = Sketch()
    s.conv(s.conv(s.input(1, 3, 64, 64), 16), 32, 3, stride=2)
    sub = plan(s.graph(), "memoized", brick=16).subgraphs[0]
    assert sub.node_bricks[:2] == ((1, 16, 16, 16), (1, 32, 16, 16)) and sub.tasks == 16 + 4 + 4
    assert plan(s.graph(), "padded", brick=16).subgraphs[0].node_bricks[0] == (1, 16, 33, 33)


def test_a_chain_bound_by_memory_is_merged_in_bricks_near_the_core():
    made = plan(gated_depthwise())
    merged = made.subgraphs[-1]
    assert merged.strategy == "padded" and merged.bricks >= SERVER.cores and merged.footprint_bytes < SERVER.l2
    assert merged.modelled_us < 0.95 * merged.layerwise_us and merged.delta <= SERVER.delta_limit


@pytest.mark.parametrize(("channels", "layers"), [(16, 3), (24, 3), (32, 2)])
def test_a_dense_chain_is_merged_only_where_sweeps_recompute_next_to_nothing(channels: int, layers: int):
    s = Sketch()
    y = s.input(1, channels, 512, 512)
    for _ in range(layers):
        y = s.conv(y, channels)
    made = plan(s.graph())
    merged = [sub for sub in made.subgraphs if sum(made.graph.nodes[k].op.name == "Conv" for k in sub.nodes) > 1]
    assert merged and all(sub.delta < 0.02 and sub.band[2] < sub.brick[2] for sub in merged)


@pytest.mark.parametrize("device", [SERVER, host_device(), host_device("avx2"), *PRESETS.values()], ids=lambda d: d.isa)
@pytest.mark.parametrize("graph", [bottlenecks(2), bottlenecks(1, 7, 512), gated_depthwise(256)], ids=["56", "7", "dw"])
def test_auto_is_never_modelled_slower_than_layerwise(graph: Graph, device: DeviceSpec):
    auto, layerwise = plan(graph, "auto", device), plan(graph, "layerwise", device)
    assert all(s.modelled_us <= s.layerwise_us for s in auto.subgraphs)
    total = sum(s.modelled_us for s in layerwise.subgraphs)
    assert sum(s.layerwise_us for s in auto.subgraphs) == pytest.approx(total)


@pytest.mark.parametrize("isa", ["avx512", "avx2", "neon"])
@pytest.mark.parametrize(("size", "channels"), [(56, 64), (14, 256), (7, 512), (1, 512)])
def test_layers_are_cut_in_even_tasks(size: int, channels: int, isa: str):
    device = dataclasses.replace(SERVER, cores=8, isa=isa, lanes=host_device(isa).lanes)
    s = Sketch()
    s.conv(s.conv(s.input(1, channels, size, size), channels), 2 * channels, 3)
    made = plan(s.graph(), "layerwise", device)
    for sub in made.subgraphs:
        node, shape = made.graph.nodes[sub.nodes[0]], made.graph.out(made.graph.nodes[sub.nodes[0]]).shape
        if isinstance(node.op, Conv):
            saved = {"winograd4": 4.0, "winograd2": 2.25}.get(made.algorithms.get(sub.nodes[0], ""), 1.0)
            busy_us = made.graph.flops([node]) / saved / device.peak_gflops_per_core / 1e3
            per_core = 1 if sub.nodes[0] in made.algorithms else 4  # a Winograd layer pays for every cut
            assert sub.tasks >= 0.8 * min(per_core * device.cores, busy_us // device.min_task_us)
            assert sub.brick[3] == shape[3] and sub.brick[1] % device.lanes == 0
            rounds = math.ceil(sub.tasks / device.cores) * device.cores
            assert rounds * math.prod(sub.brick) <= 1.7 * math.prod(shape)


def test_products_are_cut_in_columns_where_weights_are_larger():
    s = Sketch()
    s.matmul(s.input(1, 2048), 1000)
    s.matmul(s.input(1, 4096, 256), 256)
    made = plan(s.graph("t0", "t1"), "layerwise")
    assert made.subgraphs[0].brick[1] % 64 == 0 and made.subgraphs[0].tasks > 1
    assert made.subgraphs[1].brick[2] == 256 and made.subgraphs[1].tasks >= 8


def test_global_reductions_are_cut_in_whole_channel_blocks():
    s = Sketch()
    x = arg(0, F32)
    s.add(Reduce("sum", (2, 3), True, pre=apply("mul", x, x)), s.conv(s.input(1, 3, 256, 256), 256))
    rows, reduction = plan(s.graph(), "layerwise").subgraphs[1:3]
    assert rows.brick[1] % 16 == 0 and rows.tasks >= 8
    assert reduction.brick[1] % 16 == 0 and reduction.brick[2:] == (1, 1)


def test_long_vectors_are_cut_and_short_rows_are_not():
    s = Sketch()
    s.map("exp", s.input(2**22))
    s.map("exp", s.input(64, 2**16))
    first, second = plan(s.graph("t0", "t1"), "layerwise").subgraphs
    assert first.tasks >= 8 and first.brick[0] >= 2**14 and second.brick[1] == 2**16 and second.tasks >= 8


@pytest.mark.parametrize("strategy", ["auto", "layerwise", *FORCED])
def test_empty_and_scalar_tensors(strategy: str):
    s = Sketch()
    s.map("abs", s.input())
    s.map("abs", s.input(0, 3, 4, 4))
    assert all(sub.strategy == "layerwise" for sub in plan(s.graph("t0", "t1"), strategy).subgraphs)
