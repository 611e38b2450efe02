"""Halos of 3×3 chains, worked out by hand."""

import numpy as np
import pytest

from brickrt.graph.ir import Graph
from brickrt.ops.types import Boxes
from brickrt.plan.geometry.bricks import BrickGrid
from brickrt.plan.geometry.halo import growth, middle_boxes, needed_boxes, totals, working_set
from tests.support.graphs.plan_graphs import Sketch


def chain(layers: int, size: int) -> Graph:
    s = Sketch()
    y = s.input(1, 4, size, size)
    for _ in range(layers):
        y = s.conv(y, 4)
    return s.graph()


def test_boxes_grow_by_one_per_layer_and_stop_at_the_edge():
    graph = chain(2, 16)
    needed = needed_boxes(graph, [0, 1], BrickGrid((1, 4, 16, 16), (1, 4, 8, 8)).boxes())
    assert set(needed) == {"x0", "t0", "t1"}
    assert needed["t0"].lo[:, 2:].tolist() == [[0, 0], [0, 7], [7, 0], [7, 7]]
    assert needed["t0"].hi[:, 2:].tolist() == [[9, 9], [9, 16], [16, 9], [16, 16]]
    assert needed["x0"].hi[0].tolist() == [1, 4, 10, 10]


def test_growth_of_two_and_three_layers():
    """16×16 in four 8×8 bricks: 9×9 per brick one layer up (81/64 of it), 10×10 two layers up."""
    for layers, expected in ((1, 0.0), (2, (81 / 64 + 1) / 2 - 1), (3, (100 / 64 + 81 / 64 + 1) / 3 - 1)):
        graph = chain(layers, 16)
        needed = needed_boxes(graph, range(layers), BrickGrid((1, 4, 16, 16), (1, 4, 8, 8)).boxes())
        assert growth(graph, range(layers), totals(needed), [1.0] * layers) == pytest.approx(expected)


@pytest.mark.parametrize("size", [2**9, 2**14, 2**15, 2**19])
def test_growth_of_large_images_is_that_of_small_ones(size: int):
    """2²⁰ to 2⁴⁰ elements; a layer has up to 2⁴⁵ operations, and their product has more bits than int64."""
    graph = chain(3, size)
    whole = size // 8
    band = Boxes.one((0, 0, 4 * whole, 4 * whole), (1, 4, 4 * whole + 64, 4 * whole + 64))
    bricks = (size // 64) ** 2
    needed = needed_boxes(graph, range(3), band)
    elements = {name: total * bricks for name, total in totals(needed).items()}
    flops = [graph.flops([node]) for node in graph.nodes]
    expected = (68**2 + 66**2 + 64**2) / (3 * 64**2) - 1
    assert growth(graph, range(3), elements, flops) == pytest.approx(expected)


def test_totals_and_working_set():
    graph = chain(2, 16)
    needed = needed_boxes(graph, [0, 1], BrickGrid((1, 4, 16, 16), (1, 4, 4, 16)).boxes())
    assert totals(needed)["t0"] == 4 * 16 * (5 + 6 + 6 + 5) and totals(needed)["t1"] == 4 * 16 * 16
    assert working_set(graph, needed).tolist() == [4 * 4 * 16 * rows for rows in (4 + 5 + 6, 4 + 6 + 8, 4 + 6 + 8, 15)]


def test_several_readers_need_the_box_around_all():
    """x → 3×3 and 5×5, added."""
    s = Sketch()
    x = s.map("abs", s.input(1, 4, 32, 32))
    s.map("add", s.conv(x, 4, 3), s.conv(x, 4, 5))
    needed = needed_boxes(s.graph(), range(4), Boxes.one((0, 0, 8, 8), (1, 4, 12, 12)))
    assert needed["t0"].lo[0].tolist() == [0, 0, 6, 6] and needed["x0"].hi[0].tolist() == [1, 4, 14, 14]


@pytest.mark.parametrize("shape", [(7,), (1, 16), (2, 3, 17, 5)])
def test_middle_boxes_are_bricks_of_the_grid(shape: tuple[int, ...]):
    bricks = [tuple(min(edge, extent) for extent in shape) for edge in (1, 2, 4, 8, 100)]
    boxes = middle_boxes(shape, bricks)
    for k, brick in enumerate(bricks):
        grid = BrickGrid(shape, brick).boxes()
        assert np.any((grid.lo == boxes.lo[k]).all(axis=1) & (grid.hi == boxes.hi[k]).all(axis=1))
