"""How Winograd layers are cut: an input is transformed once for all channels where rows alone make tasks enough."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from brickrt.ops.operators.conv import Conv
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.tiling.winograd_tiles import winograd_brick
from tests.plan.tiling.test_layer_tiles import SERVER
from tests.support.graphs.plan_graphs import Sketch

MOST = 8  # tasks that are asked for


def brick_of(algorithm: str, channels: int, outputs: int, edge: int, stride: int = 1, pad: int = 1) -> Sequence[int]:
    """The cut of a 3×3 convolution of an image with this edge."""
    s = Sketch()
    op = Conv((3, 3), (stride,) * 2, (1, 1), (pad,) * 2, (pad,) * 2)
    s.add(op, s.input(1, channels, edge, edge), s.constant(outputs, channels, 3, 3))
    graph = s.graph()
    cost = CostModel(graph, dict.fromkeys(graph.types, "blocked"), SERVER, {0: algorithm})
    return winograd_brick(cost, 0, MOST)


@pytest.mark.parametrize(("channels", "edge", "rows"), [(64, 56, 4), (128, 112, 8)])
def test_rows_are_cut_in_up_to_twice_the_tasks_before_channels_are(channels, edge, rows):
    assert brick_of("winograd4", channels, channels, edge) == (1, channels, rows, edge)


def test_channels_are_cut_in_two_pieces_where_there_are_few_rows():
    assert brick_of("winograd4", 256, 256, 14) == (1, 128, 8, 14)


@pytest.mark.parametrize("channels", [64, 128, 256, 512])
@pytest.mark.parametrize("edge", [7, 14, 28, 56])
def test_both_cores_have_work(channels, edge):
    counts = [-(-e // b) for e, b in zip((channels, edge), brick_of("winograd4", channels, channels, edge)[1:3])]
    assert 2 <= math.prod(counts) < 2 * MOST


def test_groups_of_strided_tiles_stay_in_a_core_s_cache():
    """Two rows of tiles of 192 channels with all residues take 1.5 times L2, and a piece of rows 1.2 times as long."""
    assert brick_of("winograd5", 192, 192, 71, stride=2, pad=0)[2] == 5
