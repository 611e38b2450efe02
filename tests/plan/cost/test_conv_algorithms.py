"""Which convolutions are computed by Winograd's algorithm, and what the planner takes it to cost."""

import dataclasses
import math

import numpy as np
import pytest

from brickrt.graph.ir import Graph
from brickrt.ops.cpu.winograd.axes import known_axes
from brickrt.ops.cpu.winograd.sizes import HELD_BYTES
from brickrt.ops.expr import arg, cast
from brickrt.ops.operators.conv import Conv
from brickrt.ops.types import TensorType
from brickrt.plan.cost.conv_algorithms import (
    EDGES,
    RAW,
    choose_algorithms,
    conv_us,
    core_share,
    holds,
    keeps_weights,
    possible_algorithms,
    tile_outputs,
    weight_growth,
    weights_again_us,
)
from brickrt.plan.cost.cost_model import BrickTrials, CostModel
from brickrt.plan.cost.integer_winograd import INTEGER_WINOGRAD
from brickrt.plan.cost.packed_weights import held_weights_bytes
from brickrt.plan.cost.winograd_times import transforms_us, winograd_us
from brickrt.plan.device.device_spec import PRESETS, DeviceSpec
from tests.support.graphs.plan_graphs import Sketch

SERVER = DeviceSpec(
    "two cores of a server", "cpu", "avx512", 2, 16, 32, 2**15, 2**20, 36 * 2**20, 2**34, 160.0,
    {"l2": 128.0, "l3": 50.0, "memory": 20.0}, tau=64,
)  # fmt: skip
SMALL_CACHE = dataclasses.replace(SERVER, l3=2**21)
NARROW = dataclasses.replace(SERVER, isa="avx2", lanes=8, registers=16)


def layer(channels: int, spatial: tuple[int, ...], kernel: tuple[int, ...], dilation: int = 1, **fields) -> Graph:
    """One convolution that keeps its input's shape."""
    s = Sketch()
    dilations = tuple(dilation if k > 1 else 1 for k in kernel)
    pads = tuple(k // 2 * d for k, d in zip(kernel, dilations, strict=True))
    op = Conv(kernel, (1,) * len(kernel), dilations, pads, pads)
    op = dataclasses.replace(op, **fields)
    weights = s.constant(channels, channels // op.groups, *kernel)
    s.add(op, s.input(1, channels, *spatial), weights)
    return s.graph()


def chosen(graph: Graph, device: DeviceSpec = SERVER, exact: bool = False) -> str | None:
    layouts = {name: "plain" if name in graph.constants else "blocked" for name in graph.types}
    return choose_algorithms(graph, layouts, device, exact).get(0)


@pytest.mark.parametrize("device", [SERVER, NARROW], ids=["avx512", "avx2"])
@pytest.mark.parametrize(
    ("channels", "spatial", "kernel", "dilation"),
    [
        (64, (56, 56), (3, 3), 1),
        (256, (28, 28), (3, 3), 2),
        (256, (28, 28), (3, 3), 4),
        (64, (24, 24, 24), (3, 3, 3), 1),
        (128, (17, 17), (1, 7), 1),
        (128, (17, 17), (7, 1), 1),
        (64, (400,), (3,), 1),
    ],
)
def test_large_images_are_transformed(channels, spatial, kernel, dilation, device):
    graph = layer(channels, spatial, kernel, dilation)
    assert chosen(graph, device) in EDGES
    assert chosen(graph, device, exact=True) is None
    assert chosen(graph, PRESETS["h200"]) is None


@pytest.mark.parametrize(
    "graph",
    [
        layer(512, (1, 1), (3, 3)),
        layer(512, (4, 4), (3, 3), 4),
        layer(64, (56, 56), (1, 1)),
        layer(64, (56, 56), (3, 3), groups=2),
        layer(64, (56, 56), (3, 3), strides=(2, 2)),
        layer(64, (56, 56), (3, 3), pads=(3, 3)),
        layer(64, (56, 56), (6, 6)),
        layer(64, (56, 56), (9, 9)),
        layer(64, (8, 8, 8, 8), (3, 3, 3, 3)),
    ],
    ids=["pixel", "padding", "point", "groups", "stride", "pads", "even", "large", "4-D"],
)
def test_what_is_computed_directly(graph):
    assert chosen(graph) is None


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_weights_of_float32_are_stored_transformed_where_they_are_paced(dtype):
    """Those of two bytes stay as they are."""
    s, paced = Sketch(), dataclasses.replace(SERVER, paces_weights=True)
    s.add(
        Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
        s.input(1, 128, 14, 14),
        s.constant(128, 128, 3, 3, values=np.zeros((128, 128, 3, 3), dtype)),
    )
    names = possible_algorithms(s.graph(), dict.fromkeys(s.graph().types, "blocked"), paced, 0, 0)
    assert names and {keeps_weights(name) for name in names} == {dtype == np.float16}


def test_constants_that_stay_in_the_shared_cache_cost_less_where_they_are_paced():
    graph, paced = layer(128, (14, 14), (3, 3)), dataclasses.replace(SERVER, paces_weights=True)
    few, many = (conv_us(graph, graph.nodes[0], paced, "winograd4", n) for n in (2**20, 2**24))
    assert few < many


def integers(weight: int, channels: int = 64, strides=(1, 1)) -> Graph:
    """A convolution of bytes, all of whose weights are one number."""
    s = Sketch()
    x, w = (
        s.input(1, channels, 56, 56, dtype=np.dtype(np.uint8)),
        s.constant(64, channels, 3, 3, values=np.full((64, channels, 3, 3), weight, np.int8)),
    )
    s.add(Conv((3, 3), strides, (1, 1), (1, 1), (1, 1), epilogue=cast(arg(0, "int32"), "float32")), x, w)
    return s.graph()


@pytest.mark.parametrize("exact", [False, True])
def test_integers_are_transformed_where_no_instruction_multiplies_bytes(exact):
    """Results are exact either way."""

    def named(graph, device=SERVER):
        layouts = dict.fromkeys(graph.types, "blocked")
        return choose_algorithms(graph, layouts, device, exact).get(0)

    assert named(integers(100)) == INTEGER_WINOGRAD
    assert named(integers(100, 1024)) is None  # sums too large to be exact
    assert named(integers(-100, strides=(2, 2))) is None
    vnni = dataclasses.replace(SERVER, byte_products=4)
    graph = integers(100)
    assert named(graph, vnni) is None
    assert INTEGER_WINOGRAD in possible_algorithms(graph, dict.fromkeys(graph.types, "blocked"), vnni, 0, 0)


@pytest.mark.parametrize("spatial", [(224, 224), (16, 112, 112)], ids=["image", "volume"])
def test_first_layers_with_strides_are_transformed_from_plain_inputs(spatial):
    s, kernel = Sketch(), (7,) * len(spatial)
    op = Conv(kernel, (2,) * len(spatial), (1,) * len(spatial), (3,) * len(spatial), (3,) * len(spatial))
    s.add(op, s.input(1, 3, *spatial), s.constant(64, 3, *kernel))
    graph = s.graph()
    layouts = {name: "blocked" if name == graph.nodes[0].output else "plain" for name in graph.types}
    assert choose_algorithms(graph, layouts, SERVER, exact=False) in ({0: "winograd3"}, {0: "winograd4"})
    assert choose_algorithms(graph, layouts, SERVER, exact=True) == {}


def test_strides_need_large_images_and_few_channels():
    assert chosen(layer(64, (320, 320), (3, 3), strides=(2, 2))) in EDGES
    assert chosen(layer(512, (28, 28), (3, 3), strides=(2, 2))) is None


def test_a_direct_convolution_costs_the_taps_that_fall_on_the_tensor():
    """With 3 taps, the two outputs of a dimension of two elements read 2 each; a single one reads 1."""
    flat, deep, full = (layer(64, (d, 28, 28), (k, 3, 3)) for d, k in ((1, 3), (2, 3), (1, 1)))
    flat_cost, deep_cost, full_cost = (conv_us(g, g.nodes[0], SERVER, "direct") for g in (flat, deep, full))
    assert flat_cost == pytest.approx(full_cost)
    assert deep_cost == pytest.approx(4 * full_cost)


def test_weights_and_tiles_grow_with_the_edge():
    square, row, box = (layer(16, (9,) * len(k), k).nodes[0].op for k in ((3, 3), (1, 7), (3, 3, 3)))
    assert weight_growth(square, "winograd4") == 4
    assert weight_growth(row, "winograd4") == pytest.approx(10 / 7)
    assert weight_growth(box, "winograd2") == pytest.approx(16 / 9)
    assert weight_growth(square, None) == 1
    assert [tile_outputs(box, "winograd4", dim) for dim in (2, 3, 4)] == [1, 4, 4]
    assert tile_outputs(dataclasses.replace(square, dilations=(2, 3)), "winograd4", 3) == 12
    assert tile_outputs(square, None, 2) == 1


def test_costs_are_finite_for_any_shape():
    rng = np.random.default_rng(0)
    for _ in range(200):
        kernel = tuple(int(k) for k in rng.choice([1, 3], int(rng.integers(1, 4))))
        spatial = tuple(int(e) for e in rng.integers(1, 40, len(kernel)))
        graph = layer(int(rng.integers(1, 600)), spatial, (*kernel[:-1], 3), int(rng.integers(1, 6)))
        costs = [conv_us(graph, graph.nodes[0], SERVER, name) for name in ("direct", "winograd2", "winograd4")]
        assert all(math.isfinite(c) and c > 0 for c in costs)


def test_deep_layers_transform_weights_while_they_run():
    """Many weights and few pixels among constants that no cache holds: memory is read a quarter as often."""
    graph = layer(512, (14, 14), (3, 3))
    layouts = {name: "plain" if name in graph.constants else "blocked" for name in graph.types}
    name = choose_algorithms(graph, layouts, SMALL_CACHE, exact=False)[0]
    assert keeps_weights(name) and weight_growth(graph.nodes[0].op, name) == 1
    stored = name.removesuffix(RAW)
    times = [conv_us(graph, graph.nodes[0], SMALL_CACHE, each, 10**9) for each in (name, stored)]
    assert times[0] < times[1]


def test_weights_of_two_bytes_are_transformed_while_they_run_or_not_at_all():
    deep = narrow(layer(256, (14, 14), (3, 3)))
    assert keeps_weights(str(chosen(deep, SMALL_CACHE)))
    assert chosen(narrow(layer(256, (28, 28), (3, 3), strides=(2, 2))), SMALL_CACHE) is None
    name = str(chosen(deep, SMALL_CACHE))
    halved = conv_us(deep, deep.nodes[0], SMALL_CACHE, name, 10**9)
    assert halved <= conv_us(layer(256, (14, 14), (3, 3)), deep.nodes[0], SMALL_CACHE, name, 10**9)
    assert core_share(deep, deep.nodes[0], SERVER, name, 1, 1, 0).raw_bytes == 2
    assert core_share(deep, deep.nodes[0], SERVER, "direct", 1, 1, 0).raw_bytes == 0


def test_few_weights_are_transformed_once_for_each_box():
    """That takes many tiles little longer than weights that are stored so."""
    few, many = narrow(layer(64, (128, 128), (3, 3))), narrow(layer(512, (128, 128), (3, 3)))
    shares = [core_share(g, g.nodes[0], SERVER, "winograd4-raw", 1, 1, 0) for g in (few, many)]
    assert [share.once for share in shares] == [True, False]
    made = conv_us(few, few.nodes[0], SERVER, "winograd4-raw")
    stored = layer(64, (128, 128), (3, 3))
    assert made < 1.1 * conv_us(stored, stored.nodes[0], SERVER, "winograd4")


def narrow(graph: Graph) -> Graph:
    """The graph with its weights in float16."""
    half = {name: array.astype(np.float16) for name, array in graph.constants.items()}
    types = {name: TensorType(array.shape, array.dtype) for name, array in half.items()}
    return dataclasses.replace(graph, constants=half, types={**graph.types, **types})


def test_channels_are_paired_where_all_wait_for_weights():
    slow = {**SERVER.bandwidth, "l3": 30.0, "memory": 30.0}
    waits = dataclasses.replace(SERVER, pairs=True, bandwidth=slow)
    graph = layer(512, (9, 25), (3, 3))
    alone, paired = (conv_us(graph, graph.nodes[0], waits, name) for name in ("winograd4", "winograd4-paired"))
    assert alone == paired and chosen(graph, waits) == "winograd4-paired"


def test_channels_are_paired_with_weights_of_two_bytes():
    """Where a worker has room for all transformed weights, and there are enough tiles to make up for making them."""
    paired = dataclasses.replace(SERVER, pairs=True)
    few, small, large = (narrow(layer(n, (s, s), (3, 3))) for n, s in ((128, 64), (128, 8), (1024, 64)))
    assert chosen(few, paired) == "winograd4-paired-raw" and keeps_weights(str(chosen(few, paired)))
    assert chosen(few, SERVER) == "winograd4-raw" == chosen(large, paired)
    assert chosen(small, paired) != "winograd4-paired-raw"
    assert chosen(layer(128, (64, 64), (3, 3)), paired) == "winograd4-paired"
    assert core_share(few, few.nodes[0], SERVER, "winograd4-paired-raw", 1, 1, 0).paired
    made, stored = (conv_us(few, few.nodes[0], paired, f"winograd4-paired{way}") for way in (RAW, ""))
    assert stored < made < conv_us(few, few.nodes[0], paired, "winograd4-raw")


def test_weights_of_two_bytes_are_held_while_a_worker_has_room():
    """They are transformed once by each worker, not once for each group of tiles."""
    paced = dataclasses.replace(SERVER, paces_weights=True)
    for channels, name in ((256, "winograd4-held-raw"), (512, "winograd4-held-raw"), (1024, "winograd4-raw")):
        graph = narrow(layer(channels, (64, 64), (3, 3)))
        assert chosen(graph, paced) == name
        held = held_weights_bytes(graph, {0: name})
        assert held == (channels * channels * 36 * 4 if holds(name) else 0) <= HELD_BYTES
    graph = narrow(layer(256, (64, 64), (3, 3)))
    bandwidth = {level: 32 * gbps for level, gbps in paced.bandwidth.items()}
    assert chosen(graph, dataclasses.replace(paced, cores=64, bandwidth=bandwidth)) == "winograd4-raw"  # 600 MB in all
    share = core_share(graph, graph.nodes[0], paced, "winograd4-held-raw", 8, 2, 0)
    again = dataclasses.replace(share, held=False)
    axes = known_axes(graph.nodes[0].op, (64, 64), 4)
    more = winograd_us(axes, 256, (1, 256, 8, 64), paced, again) - winograd_us(axes, 256, (1, 256, 8, 64), paced, share)
    assert more >= 6 * transforms_us(axes, 256, 256, paced, share) > 0


def test_bricks_transform_weights_of_their_own_once_more_each():
    """Those of all their output channels, where kernels do that while they run."""
    graph, name = narrow(layer(256, (32, 32), (3, 3))), "winograd4-raw"
    node, bricks = graph.nodes[0], ((1, 256, 32, 32), (1, 256, 4, 32), (1, 64, 4, 32))
    size, rows = graph.out(node).size * np.ones(3), np.array([brick[2] for brick in bricks])
    trials = BrickTrials([0], bricks, np.ones(3), rows, {node.output: size}, np.zeros(3))
    again, each = weights_again_us(graph, node, SERVER, name), dict[str, np.ndarray]()
    for other in ("winograd4", INTEGER_WINOGRAD, "strassen2-raw", "direct"):
        assert again > 0 == weights_again_us(graph, node, SERVER, other)
    for algorithm in (name, "winograd4"):
        cost = CostModel(graph, dict.fromkeys(graph.types, "blocked"), SERVER, {0: algorithm})
        each[algorithm] = cost.recomputed_us(0, trials)
    np.testing.assert_allclose(each[name] - each[name][0], [0, 7 * again, 7 * again])
    np.testing.assert_allclose(each["winograd4"], each["winograd4"][0])


def test_processors_that_pace_weights_transform_fewer_of_them_at_once():
    """Those of a layer of 128 channels are more than their own cache holds."""
    layers = narrow(layer(64, (128, 128), (3, 3))), narrow(layer(128, (128, 128), (3, 3)))
    for paced, once in ((False, [True, True]), (True, [True, False])):
        device = dataclasses.replace(SERVER, paces_weights=paced)
        assert [core_share(g, g.nodes[0], device, "winograd4-raw", 1, 1, 0).once for g in layers] == once
