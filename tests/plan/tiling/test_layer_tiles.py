"""How layers on their own are cut in tasks that keep the cores evenly busy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from brickrt.graph.ir import Graph
from brickrt.ops.expr import apply, arg
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.partial_reduce import PartialReduce
from brickrt.ops.operators.rowwise import Rowwise, Step
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.tiling.layer_tiles import layer_brick
from tests.plan.cost.test_conv_algorithms import narrow
from tests.support.graphs.plan_graphs import Sketch

SERVER = DeviceSpec(
    "two cores of a server", "cpu", "avx512", 2, 16, 32, 2**15, 2**20, 32 * 2**20, 2**34, 110.0,
    {"l2": 200.0, "l3": 80.0, "memory": 40.0}, tau=64,
)  # fmt: skip
F32 = np.dtype(np.float32)
DOUBLE_PUMPED = dataclasses.replace(SERVER, double_pumped=True)
PACED = dataclasses.replace(SERVER, paces_weights=True)


def pointwise(channels: int, outputs: int, edge: int) -> Graph:
    """x → 1×1 convolution, blocked."""
    s = Sketch()
    op = Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
    s.add(op, s.input(1, channels, edge, edge), s.constant(outputs, channels, 1, 1))
    return s.graph()


def channels_of_a_task(device: DeviceSpec, channels: int, outputs: int) -> int:
    graph = pointwise(channels, outputs, 7)
    return layer_brick(CostModel(graph, dict.fromkeys(graph.types, "blocked"), device), 0)[1]


@pytest.mark.parametrize(("channels", "outputs", "expected"), [(576, 160, 80), (160, 960, 240)])
def test_channels_are_cut_evenly_where_a_tile_has_one_block(channels, outputs, expected):
    assert channels_of_a_task(DOUBLE_PUMPED, channels, outputs) == expected


def busiest(outputs: int, edge: int) -> int:
    """Channels of the busier of two cores, each of which takes the next task when it is free."""
    loads = [0, 0]
    for start in range(0, outputs, edge):
        loads[loads.index(min(loads))] += min(edge, outputs - start)
    return max(loads)


@pytest.mark.parametrize("outputs", [160, 192, 320, 960])
def test_the_busiest_core_has_hardly_more_than_it_must(outputs):
    """Tasks are whole tiles of four blocks, the last one may be smaller."""
    edge = channels_of_a_task(SERVER, 960, outputs)
    assert edge % 64 == 0
    least = min(busiest(outputs, width) for width in range(64, outputs, 64))
    assert busiest(outputs, edge) <= least + 0.1 * outputs / 2


@pytest.mark.parametrize(("groups", "width", "cut"), [(37, 24, True), (55, 8, True), (888, 1, False), (2, 40, False)])
def test_channels_are_cut_where_a_group_and_a_block_begin(groups, width, cut):
    """Weights of many groups lead; depthwise layers are cut in rows, as are those with no such place."""
    s = Sketch()
    op = Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), groups)
    s.add(op, s.input(1, groups * width, 7, 7), s.constant(groups * width, width, 3, 3))
    graph = s.graph()
    model = CostModel(graph, dict.fromkeys(graph.types, "blocked"), dataclasses.replace(SERVER, min_task_us=1.0))
    edge = layer_brick(model, 0)[1]
    assert (edge < groups * width) == cut
    assert not cut or edge % width == edge % SERVER.lanes == 0


@pytest.mark.parametrize(
    ("outputs", "dilation", "edge", "brick"),
    [(256, 24, 48, (1, 128, 12, 48)), (1024, 1, 8, (1, 128, 8, 8)), (256, 1, 192, (1, 256, 24, 192))],
)
def test_channels_swept_in_chunks_make_few_tasks(outputs, dilation, edge, brick):
    """Slabs that fit L2 would read all 18 MiB of weights dozens of times; those here read the least together."""
    s = Sketch()
    op = Conv((3, 3), (1, 1), (dilation,) * 2, (dilation,) * 2, (dilation,) * 2)
    s.add(op, s.input(1, 2048, edge, edge), s.constant(outputs, 2048, 3, 3))
    graph = s.graph()
    assert layer_brick(CostModel(graph, dict.fromkeys(graph.types, "blocked"), SERVER), 0) == brick


@pytest.mark.parametrize(("depth", "pieces"), [(2**14, 8), (2**16, 2)])
def test_rows_of_a_product_are_cut_for_cores_where_the_other_factor_exceeds_their_caches(depth, pieces):
    """a [96, depth] × b [depth, 96], both computed: each piece of rows reads all of b, 6 MiB or 24 of a core's 17."""
    s = Sketch()
    s.add(MatMul(), s.input(96, depth), s.input(depth, 96))
    graph = s.graph()
    brick = layer_brick(CostModel(graph, dict.fromkeys(graph.types, "plain"), SERVER), 0)
    assert brick == (96 // pieces, 96)


@pytest.mark.parametrize("cores", [2, 8, 32])
def test_signals_are_cut_in_whole_segments_of_what_reduces_them(cores):
    """Tasks of the convolution take the partial sums too, also where even pieces would end inside a segment."""
    s = Sketch()
    y = s.conv(s.input(1, 32, 131072), 32)
    s.add(PartialReduce("sum", 64), y)
    graph = s.graph()
    device = dataclasses.replace(SERVER, cores=cores)
    brick = layer_brick(CostModel(graph, dict.fromkeys(graph.types, "blocked"), device), 0)
    assert brick[:2] == (1, 32) and brick[2] % 64 == 0 and cores <= -(-131072 // brick[2])


def test_weights_are_read_once_where_they_are_asked_for_at_an_even_pace():
    """Channels are cut, and rows of pixels stay whole, even where half of L2 does not hold the image."""
    for channels, outputs in ((2048, 512), (4096, 1024)):
        graph = pointwise(channels, outputs, 7)
        _, edge, *image = layer_brick(CostModel(graph, dict.fromkeys(graph.types, "blocked"), PACED), 0)
        assert edge < outputs and outputs % edge == 0 and image == [7, 7]


def test_weights_of_two_bytes_are_cut_as_those_of_four():
    """Each task widens those that it reads, for as many pixels as it has."""
    wide = pointwise(1024, 256, 14)
    bricks = [
        layer_brick(CostModel(graph, dict.fromkeys(graph.types, "blocked"), PACED), 0) for graph in (wide, narrow(wide))
    ]
    assert bricks[0] == bricks[1] and bricks[0][1] < 256


@pytest.mark.parametrize(("depth", "device", "whole"), [(768, PACED, True), (3072, PACED, False), (768, SERVER, False)])
def test_rows_that_share_weights_stay_whole_where_half_of_l2_holds_them(depth, device, whole):
    s = Sketch()
    s.add(MatMul(), s.input(128, depth), s.constant(depth, 384))
    graph = s.graph()
    brick = layer_brick(CostModel(graph, dict.fromkeys(graph.types, "plain"), device), 0)
    assert (brick[0] == 128) == whole and brick[1] < 384


def row_brick(
    axes: tuple[int, ...], shape: tuple[int, ...], layout: str = "blocked", cores: int = 2
) -> tuple[int, ...]:
    """The brick of what is divided by its sums over `axes`."""
    s, x = Sketch(), arg(0, F32)
    s.add(Rowwise(axes, (Step("sum", x),), apply("div", x, arg(1, F32))), s.input(*shape))
    graph, device = s.graph(), dataclasses.replace(SERVER, cores=cores, min_task_us=1.0)
    return layer_brick(CostModel(graph, dict.fromkeys(graph.types, layout), device), 0)


@pytest.mark.parametrize("shape", [(1, 64, 32, 32, 32), (1, 512, 3199), (2, 48, 128, 128)])
def test_norms_of_images_are_cut_in_channels(shape):
    """A piece of an image's rows would sum up all of them."""
    images, channels, *space = row_brick(tuple(range(2, len(shape))), shape)
    assert images == 1 and channels % 16 == 0 and channels < shape[1] and space == list(shape[2:])


def test_norms_of_few_channels_are_cut_in_rows_for_cores_that_have_none():
    assert row_brick((2, 3), (1, 16, 64, 64), cores=4) == (1, 16, 16, 64)
    assert row_brick((2, 3), (1, 32, 64, 64), cores=4) == (1, 16, 32, 64)


def test_rows_are_cut_where_other_axes_are_reduced():
    assert row_brick((1,), (1, 64, 128, 128))[:2] == (1, 64) and row_brick((1,), (1, 64, 128, 128))[2] < 128
    *_, rows, columns = row_brick((3,), (1, 64, 128, 128))
    assert rows < 128 == columns


def test_plain_rows_stay_whole_while_there_are_others():
    assert row_brick((1, 2), (64, 128, 256), "plain")[1:] == (128, 256)
    assert row_brick((1, 2), (1, 128, 256), "plain") == (1, 64, 256)
