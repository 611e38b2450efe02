"""Which convolutions are computed by Winograd's algorithm with products in tile registers, and at what cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brickrt.ops.operators.conv import Conv
from brickrt.plan.cost.conv_algorithms import (
    added_bytes,
    choose_algorithms,
    core_share,
    layer_us,
    possible_algorithms,
    weight_growth,
)
from brickrt.plan.cost.product_counts import multiply_adds
from tests.plan.cost.test_tile_products import DEVICE, network, window
from tests.plan.tiling.test_layer_tiles import SERVER

NAME = "winograd4-tiles"
FAR = replace(
    DEVICE, cores=1, l2=1 << 21, l3=1 << 28, peak_gflops_per_core=192.0,
    bandwidth={"l2": 180.0, "l3": 15.0, "memory": 15.0},
)  # whose shared cache is slow  # fmt: skip


def layer(channels, edge, kinds=("float32", "float32"), op=None):
    return network(op or window(), (1, channels, edge, edge), (channels, channels, 3, 3), kinds)


def test_many_pixels_by_few_weights():
    graph, layouts = network(window(), (1, 32, 112, 112), (64, 32, 3, 3))
    assert choose_algorithms(graph, layouts, FAR, False) == {0: NAME}
    assert not choose_algorithms(graph, layouts, FAR, True).get(0, "").startswith("winograd")


def test_few_pixels_do_not_pay_for_large_weights():
    graph, layouts = layer(256, 7)
    assert "-tiles" not in choose_algorithms(graph, layouts, FAR, False).get(0, "").removeprefix("tiles")


@pytest.mark.parametrize(
    ("device", "kinds", "op"),
    [
        (SERVER, ("float32", "float32"), None),
        (DEVICE, ("float32", "float16"), None),
        (DEVICE, ("bfloat16", "bfloat16"), None),
        (DEVICE, ("float32", "float32"), Conv((3, 3), (2, 2), (1, 1), (1, 1), (1, 1))),
    ],
    ids=["no tile registers", "narrow weights", "bfloat16", "strides"],
)
def test_what_is_not_computed_so(device, kinds, op):
    graph, layouts = layer(64, 28, kinds, op)
    assert NAME not in possible_algorithms(graph, layouts, device, 0, 0)


def test_parts_take_half_as_much_again():
    graph, _ = layer(64, 28)
    op, weights = graph.nodes[0].op, graph.types[graph.nodes[0].inputs[1]]
    assert weight_growth(op, NAME) == pytest.approx(1.5 * weight_growth(op, "winograd4")) == 6
    assert added_bytes(op, NAME, weights) == 6 * weights.nbytes
    assert core_share(graph, graph.nodes[0], DEVICE, NAME, 1, 1, 0).tiled


def test_weights_that_come_from_afar_take_their_time():
    graph, _ = layer(256, 14)
    near = replace(FAR, bandwidth={"l2": 180.0, "l3": 60.0, "memory": 60.0})
    times = [layer_us(graph, graph.nodes[0], device, NAME) for device in (near, FAR)]
    assert times[1] > 1.5 * times[0]


def test_weights_that_do_not_stay_beside_tiles_are_read_again():
    """Those of 64 channels take half of L2, and so do the tiles."""
    graph, _ = layer(64, 112)
    times = [layer_us(graph, graph.nodes[0], replace(FAR, l2=l2), NAME) for l2 in (1 << 22, 1 << 21)]
    assert times[1] > 1.3 * times[0]


def test_the_least_work():
    """Products of Winograd's algorithm at the peak of tiles."""
    graph, _ = layer(64, 28)
    vectors, tiles = (multiply_adds(graph, graph.nodes[0], name) for name in ("winograd4", NAME))
    assert tiles == pytest.approx(vectors * 6 / 16)
