"""How long products of fused bricks take: what their tiles compute, move through shared memory, and wait for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brickrt.graph.ir import Graph
from brickrt.ops.cuda.shared_memory import FUSED, FUSED_IN_PLACE, most_with
from brickrt.plan.cost.constants import L2_US, NEAR_US, NEAR_WEIGHTS
from brickrt.plan.cost.tile_times import FirstFactor, TileTimes, tile_times
from brickrt.plan.device.device_spec import PRESETS
from tests.support.graphs.plan_graphs import Sketch

H200 = PRESETS["h200"]
TILE = (1, 64, 8, 16)  # a tile of 128 x 64


def pointwise(channels: int, outputs: int) -> Graph:
    s = Sketch()
    s.conv(s.input(1, channels, 32, 32), outputs, 1)
    return s.graph()


def times(graph: Graph, box, in_place=True, shared=True, device=H200, precision="tf32") -> TileTimes:
    layouts = dict.fromkeys(graph.types, "last")
    factor = FirstFactor(shared, in_place, most_with(FUSED_IN_PLACE if in_place else FUSED))
    return tile_times(graph, layouts, graph.nodes[0], box, factor, device, precision)


def test_a_tile_by_hand():
    """128 x 64 sums of depth 32 by 4 x 2 warps: of A 16 KB twice, of B 8 KB written and read by 4, sums of 32 KB
    twice."""
    moved = 128 * 32 * 4 * 2 + 64 * 32 * 4 * (1 + 4) + 2 * 128 * 64 * 4
    found = times(pointwise(32, 64), TILE)
    assert found.busy == pytest.approx(moved / (H200.bandwidth["shared"] / H200.cores * 1e3))
    assert found.waits == NEAR_US and found.weights == 32 * 64 * 4


def test_copies_of_the_first_factor_take_longer():
    graph = pointwise(64, 64)
    in_place, copied, fetched = (
        times(graph, TILE, **how).busy for how in ({}, {"in_place": False}, {"in_place": False, "shared": False})
    )
    assert in_place < fetched < copied


def test_boxes_that_do_not_fill_tiles_take_as_long_as_full_ones():
    graph = pointwise(64, 64)
    assert times(graph, (1, 64, 7, 16)) == times(graph, TILE)
    assert times(graph, (1, 64, 16, 16)).busy == 2 * times(graph, TILE).busy


def test_on_cuda_cores_arithmetic_is_what_counts():
    graph = pointwise(64, 64)
    slow, quick = replace(H200, bandwidth=dict(H200.bandwidth, shared=1e12)), H200
    found = [times(graph, TILE, False, device=device, precision="fp32").busy for device in (slow, quick)]
    least = 2 * 64 * 64 * 128 / (H200.peak_gflops_per_core * 1e3)
    assert least < found[0] < found[1] < 2 * least


def test_large_weights_come_from_l2_for_each_row_of_tiles():
    """Half of the columns have half of the weights."""
    graph = pointwise(256, 128)
    nbytes = 256 * 128 * 4
    assert nbytes > NEAR_WEIGHTS
    one, two, half = (times(graph, box) for box in ((1, 128, 8, 16), (1, 128, 16, 16), (1, 64, 8, 16)))
    assert (one.weights, two.weights, half.weights) == (nbytes, 2 * nbytes, nbytes / 2)
    assert one.waits >= 2 * L2_US
