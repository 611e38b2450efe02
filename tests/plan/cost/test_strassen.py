"""Which matrix products are computed by Strassen's scheme, and how they are cut."""

import dataclasses
import math

import numpy as np
import pytest

from brickrt.graph.ir import Graph
from brickrt.ops.cpu.strassen.sizes import group_columns
from brickrt.ops.operators.matmul import MatMul
from brickrt.plan.cost.conv_algorithms import choose_algorithms, layer_us, weight_growth
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.cost.strassen import LEVELS
from brickrt.plan.device.device_spec import PRESETS, DeviceSpec
from brickrt.plan.layout import Layout
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import make_plan
from brickrt.plan.tiling.layer_tiles import layer_brick
from tests.support.graphs.plan_graphs import Sketch

SERVER = DeviceSpec(
    "two cores of a server", "cpu", "avx512", 2, 16, 32, 2**15, 2**20, 36 * 2**20, 2**34, 110.0,
    {"l2": 200.0, "l3": 80.0, "memory": 40.0}, tau=64, double_pumped=True,
)  # fmt: skip
PAIRING = dataclasses.replace(SERVER, pairs=True)
NARROW = dataclasses.replace(SERVER, isa="avx2", lanes=8, registers=16, double_pumped=False)

SLOW = dataclasses.replace(
    NARROW, one_a_cycle=True, l2=2**19, l3=2**23, peak_gflops_per_core=48.0,
    bandwidth={"l2": 180.0, "l3": 60.0, "memory": 20.0},
)  # fmt: skip


def product(*shape: int, columns: int, dtype: type = np.float32) -> Graph:
    """[batch…, M, K] times constant columns."""
    s = Sketch()
    kind = np.dtype(dtype)
    weights = s.constant(shape[-1], columns, values=np.broadcast_to(np.zeros((), kind), (shape[-1], columns)))
    s.add(MatMul(), s.input(*shape, dtype=kind), weights)
    return s.graph()


def pointwise(*shape: int, channels: int, stride: int = 1, groups: int = 1) -> Graph:
    """[N, C, spatial…] to so many channels."""
    s = Sketch()
    s.conv(s.input(*shape), channels, 1, stride, groups)
    return s.graph()


def chosen(graph: Graph, device: DeviceSpec = SERVER, exact: bool = False, layout: Layout = "plain") -> str | None:
    return choose_algorithms(graph, dict.fromkeys(graph.types, layout), device, exact).get(0)


@pytest.mark.parametrize(
    ("shape", "columns"), [((1, 197, 384), 1536), ((8, 197, 768), 768), ((512, 960), 1024), ((2, 3, 128, 512), 2048)]
)
def test_large_products_multiply_less(shape, columns):
    graph = product(*shape, columns=columns)
    name = chosen(graph)
    assert name in LEVELS
    assert chosen(graph, exact=True) is None
    assert chosen(graph, PRESETS["h200"]) is None and chosen(graph, NARROW) is None
    times = [layer_us(graph, graph.nodes[0], SERVER, algorithm) for algorithm in (name, None)]
    assert (7 / 8) ** LEVELS[name] < times[0] / times[1] < 1


@pytest.mark.parametrize(
    "graph",
    [
        product(1, 384, columns=1536),
        product(8, 1024, columns=1024),
        product(1000, 32, columns=512),
        product(200, 384, columns=16),
        product(200, 100, columns=400),
        product(200, 384, columns=384, dtype=np.float64),
    ],
    ids=["one row", "few rows", "shallow", "few columns", "depth of no whole vectors", "float64"],
)
def test_others_are_multiplied_directly(graph):
    assert chosen(graph) is None


def test_short_vectors_gain_where_a_core_multiplies_one_a_cycle():
    """Tiles end often there: two levels need long sums, one level any that L1 holds the panels of."""
    assert chosen(product(197, 768, columns=3072), SLOW) == "strassen2"
    assert chosen(product(3136, 96, columns=384), SLOW) == "strassen"
    assert chosen(product(197, 768, columns=3072), dataclasses.replace(SLOW, one_a_cycle=False)) is None
    assert chosen(product(784, 512, columns=128), SLOW) is None
    assert chosen(product(49, 768, columns=3072), SLOW) is None
    assert chosen(narrow_weights(512, 768, 3072), SLOW) is None
    assert chosen(product(197, 768, columns=3072), dataclasses.replace(SLOW, pairs=True)) == "strassen2"


def test_cores_share_weights_where_short_vectors_read_more_sums_than_l2_holds():
    """Rows are cut, so that the first factors of a core's half are read soon enough."""
    graph = product(197, 768, columns=3072)
    layouts = dict.fromkeys(graph.types, "plain")
    brick = layer_brick(CostModel(graph, layouts, SLOW, {0: "strassen2"}), 0)
    assert brick == (99, 1536)


def test_columns_that_are_no_constants_are_multiplied_directly():
    s = Sketch()
    s.add(MatMul(), s.input(1, 197, 384), s.input(384, 384))
    assert chosen(s.graph()) is None


def test_two_levels_need_columns_for_four_tiles_and_memory_for_three_times_the_weights():
    assert chosen(product(1, 197, 384, columns=1536)) == "strassen2"
    assert chosen(product(8, 197, 192, columns=192)) == "strassen"
    small = dataclasses.replace(SERVER, memory=2**23)
    assert chosen(product(1, 197, 384, columns=1536), small) is None


def test_a_slight_gain_is_taken_only_where_it_was_measured():
    graph = product(8, 197, 192, columns=192)
    assert chosen(graph) == "strassen"
    assert chosen(graph, dataclasses.replace(SERVER, double_pumped=False)) is None


def test_microseconds_are_not_worth_a_scheme():
    """The same share of eight times the time is taken."""
    assert chosen(product(1, 197, 192, columns=192)) is None


def test_sums_take_as_long_as_l2_does():
    """Twice the multiply-adds a cycle, and the same cache: sums of few columns are no longer hidden."""
    graph = pointwise(1, 512, 28, 28, channels=128)
    twice = dataclasses.replace(SERVER, double_pumped=False, peak_gflops_per_core=2 * SERVER.peak_gflops_per_core)
    assert chosen(graph, layout="blocked") in LEVELS
    assert chosen(graph, twice, layout="blocked") is None


@pytest.mark.parametrize(
    ("shape", "channels", "stride"),
    [
        ((1, 256, 14, 14), 1024, 1),
        ((1, 512, 56, 56), 512, 2),
        ((8, 1024, 7, 7), 1024, 1),
        ((1, 512, 400), 512, 1),
        ((1, 256, 4, 14, 14), 512, 1),
    ],
)
def test_pointwise_convolutions_multiply_less(shape, channels, stride):
    graph = pointwise(*shape, channels=channels, stride=stride)
    name = chosen(graph, layout="blocked")
    assert name in LEVELS and chosen(graph, NARROW, layout="blocked") is None
    assert chosen(graph) is None
    assert chosen(graph, exact=True, layout="blocked") is None
    times = [layer_us(graph, graph.nodes[0], SERVER, algorithm) for algorithm in (name, None)]
    assert (7 / 8) ** LEVELS[name] < times[0] / times[1] < 1
    assert weight_growth(graph.nodes[0].op, name) == (7 / 4) ** LEVELS[name]


@pytest.mark.parametrize(
    "graph",
    [
        pointwise(1, 512, 1, 1, channels=512),
        pointwise(1, 32, 56, 56, channels=256),
        pointwise(1, 256, 56, 56, channels=16),
        pointwise(1, 120, 28, 28, channels=512),
        pointwise(1, 512, 14, 14, channels=512, groups=2),
    ],
    ids=["one pixel", "shallow", "few channels", "depth of no whole vectors", "groups"],
)
def test_other_pointwise_convolutions_are_direct(graph):
    assert chosen(graph, layout="blocked") is None


@pytest.mark.parametrize("shape", [(1, 256, 56, 56), (4, 512, 28, 28), (1, 512, 16, 14, 14), (1, 512, 784)])
def test_pixels_are_cut_in_whole_rows_that_leave_room_for_their_sums(shape):
    graph = pointwise(*shape, channels=shape[1])
    layouts = dict.fromkeys(graph.types, "blocked")
    algorithms = choose_algorithms(graph, layouts, SERVER, False)
    brick = layer_brick(CostModel(graph, layouts, SERVER, algorithms), 0)
    assert brick[1] % group_columns(SERVER.lanes, LEVELS[algorithms[0]]) == 0
    assert len(shape) == 3 or brick[-1] == shape[-1]
    tasks = math.prod(-(-e // b) for e, b in zip(shape, brick, strict=True))
    assert tasks >= SERVER.cores
    sums = 4 * math.prod(brick[2:]) * shape[1] * weight_growth(graph.nodes[0].op, algorithms[0])
    assert sums / (shape[1] // 256) <= SERVER.l2


def test_bricks_of_several_layers_are_computed_directly():
    s = Sketch()
    x = s.conv(s.input(1, 256, 56, 56), 256, 1)
    s.map("max", x, s.input(1, 256, 56, 56))
    graph = s.graph()
    alone, merged = (
        make_plan(graph, SERVER, PlanOptions(strategy=strategy, brick=16)) for strategy in ("layerwise", "padded")
    )
    assert len(alone.algorithms) == 1
    assert any(len(subgraph.nodes) > 1 for subgraph in merged.subgraphs)
    assert not merged.algorithms


def narrow_weights(rows: int, depth: int, columns: int) -> Graph:
    """A product of float32 by float16 weights."""
    s = Sketch()
    zero = np.zeros((), np.float16)
    s.add(MatMul(), s.input(rows, depth), s.constant(depth, columns, values=np.broadcast_to(zero, (depth, columns))))
    return s.graph()


def test_sums_of_float16_weights_are_made_where_many_rows_share_them():
    """They stay as small as they are; the fewer rows, the longer it takes to make sums beside the products."""
    assert chosen(narrow_weights(512, 768, 3072)) == "strassen2-raw"
    assert chosen(narrow_weights(32, 768, 3072)) is None
    assert weight_growth(MatMul(), "strassen2-raw") == 1
    wide, narrow = product(512, 768, columns=3072), narrow_weights(512, 768, 3072)
    names = "strassen2", "strassen2-raw"
    times = [layer_us(g, g.nodes[0], SERVER, name) for g, name in zip((wide, narrow), names, strict=True)]
    assert times[0] < times[1]


def test_weights_grow_by_three_quarters_per_level():
    assert weight_growth(MatMul(), "strassen") == 7 / 4
    assert weight_growth(MatMul(), "strassen2") == 49 / 16
    assert weight_growth(MatMul(), None) == 1


@pytest.mark.parametrize("shape", [(1, 197, 384), (8, 197, 384), (1000, 512)])
def test_a_layer_is_cut_for_all_cores_at_pairs_of_tiles(shape):
    graph = product(*shape, columns=768)
    layouts = dict.fromkeys(graph.types, "plain")
    algorithms = choose_algorithms(graph, layouts, SERVER, False)
    brick = layer_brick(CostModel(graph, layouts, SERVER, algorithms), 0)
    assert brick[-1] % group_columns(SERVER.lanes, LEVELS[algorithms[0]]) == 0
    tasks = math.prod(-(-e // b) for e, b in zip((*shape[:-1], 768), brick, strict=True))
    assert SERVER.cores <= tasks < 2 * SERVER.tasks_per_core * SERVER.cores
