"""Which layers tile registers compute, how they are cut, and what their weights take."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.plan.cost import conv_algorithms
from brickrt.plan.cost.conv_algorithms import added_bytes, choose_algorithms, possible_algorithms
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.cost.product_counts import peak_ratio, peak_work
from brickrt.plan.cost.strassen import product_us
from brickrt.plan.cost.tile_products import CONSTANT_TIME_SHARE, TILES, TileWork, tiles_us
from brickrt.plan.tiling.tile_bricks import tile_brick
from tests.plan.tiling.test_layer_tiles import SERVER
from tests.support.graphs.plan_graphs import Sketch

DEVICE = replace(SERVER, tiles=True, byte_products=4, double_pumped=False)
BFLOAT16 = ml_dtypes.bfloat16


def network(op, x, w, kinds=("float32", "float32"), computed=False):
    """A graph of one product, whose second factor is constant unless it is `computed`, and its tensors' layouts."""
    s, second = Sketch(), np.dtype(kinds[1])
    weights = s.input(*w, dtype=second) if computed else s.constant(*w, values=np.zeros(w, second))
    s.add(op, s.input(*x, dtype=np.dtype(kinds[0])), weights)
    graph = s.graph()
    return graph, dict.fromkeys(graph.types, "blocked" if isinstance(op, Conv) else "plain")


def window(edge=3, groups=1):
    return Conv((edge, edge), (1, 1), (1, 1), (edge // 2,) * 2, (edge // 2,) * 2, groups)


@pytest.mark.parametrize("exact", [False, True])
def test_bytes_are_multiplied_in_tiles(exact):
    graph, layouts = network(window(), (1, 64, 28, 28), (64, 64, 3, 3), ("uint8", "int8"))
    assert choose_algorithms(graph, layouts, DEVICE, exact) == {0: TILES}
    assert choose_algorithms(graph, layouts, replace(SERVER, byte_products=4), exact) == {}


def test_large_products_of_float32_are_computed_in_parts():
    graph, layouts = network(MatMul(), (1, 256, 768), (768, 768))
    assert choose_algorithms(graph, layouts, DEVICE, False) == {0: TILES}
    assert TILES in possible_algorithms(graph, layouts, DEVICE, 0, 0)
    assert TILES not in possible_algorithms(graph, layouts, SERVER, 0, 0)


@pytest.mark.parametrize(
    ("op", "x", "w"),
    [
        (MatMul(), (1, 1, 768), (768, 768)),
        (window(groups=4), (1, 64, 28, 28), (64, 16, 3, 3)),
        (MatMul(), (2, 64, 64), (2, 64, 64)),
    ],
    ids=["few rows", "groups", "a matrix for each image"],
)
def test_what_tiles_do_not_compute(op, x, w):
    graph, layouts = network(op, x, w)
    assert TILES not in possible_algorithms(graph, layouts, DEVICE, 0, 0)


@pytest.mark.parametrize(("rows", "depth", "may"), [(128, 64, True), (8, 64, False), (128, 8, False)])
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_computed_matrices_with_enough_rows_and_depth(kind, rows, depth, may):
    x, w = (12, rows, depth), (12, depth, 128)
    graph, layouts = network(MatMul(), x, w, (BFLOAT16 if kind == "bfloat16" else kind,) * 2, computed=True)
    assert (TILES in possible_algorithms(graph, layouts, DEVICE, 0, 0)) == may


def test_attention_of_bfloat16_is_computed_in_tiles():
    """Vectors are about as fast in float32."""
    for kind, chosen in ((BFLOAT16, {0: TILES}), ("float32", {})):
        graph, layouts = network(MatMul(), (12, 128, 128), (12, 128, 64), (kind, kind), computed=True)
        assert choose_algorithms(graph, layouts, DEVICE, True) == chosen


def test_time_grows_with_the_matrices_that_are_brought_into_tiles():
    """Twice the images take twice as long, and a matrix that lies in tiles takes less than one that does not."""
    kinds = (BFLOAT16, BFLOAT16)
    one, two = (network(MatMul(), (n, 64, 64), (n, 64, 512), kinds, computed=True)[0] for n in (8, 16))
    shared = network(MatMul(), (8, 64, 64), (64, 512), kinds)[0]
    times = [tiles_us(graph, graph.nodes[0], DEVICE, 0) for graph in (one, two, shared)]
    assert times[1] == pytest.approx(2 * times[0])
    assert times[2] < times[0]


def test_short_pieces_of_attention_bring_keys_into_tiles_again():
    kinds = (BFLOAT16, BFLOAT16)
    graph, _ = network(MatMul(), (12, 512, 64), (12, 64, 512), kinds, computed=True)
    slower = TileWork.of(graph, graph.nodes[0], DEVICE).slower((12, 512, 512), np.array([8, 16, 64, 512, 1000]))
    assert slower[-1] == slower[-2] == 1
    assert (np.diff(slower[:4]) < 0).all()
    assert slower[0] > 2 * slower[2]


def test_weights_of_float16_stay_as_they_are():
    for op, x, w in ((MatMul(), (1, 256, 768), (768, 768)), (window(), (1, 64, 28, 28), (64, 64, 3, 3))):
        graph, layouts = network(op, x, w, ("float32", "float16"))
        assert TILES in possible_algorithms(graph, layouts, DEVICE, 0, 0)
        assert added_bytes(op, TILES, graph.ins(graph.nodes[0])[1]) == 0
    graph, layouts = network(MatMul(), (1, 256, 768), (768, 768), ("float32", "float16"))
    assert choose_algorithms(graph, layouts, DEVICE, True) == {0: TILES}


def test_products_that_a_model_computes_in_float16_take_half_of_the_time():
    """Three products of parts, not six; and their parts are no larger than the weights."""
    wide, halves = (network(MatMul(halves=mark), (1, 256, 768), (768, 768))[0] for mark in (False, True))
    times = [tiles_us(graph, graph.nodes[0], DEVICE, 0) for graph in (wide, halves)]
    assert times[1] < 0.7 * times[0]
    assert peak_work(halves, halves.nodes[0], TILES) == peak_work(wide, wide.nodes[0], TILES) / 2
    assert added_bytes(halves.nodes[0].op, TILES, halves.ins(halves.nodes[0])[1]) == 0


@pytest.mark.parametrize(("kinds", "share"), [(("float32",) * 2, CONSTANT_TIME_SHARE), ((BFLOAT16,) * 2, 1.0)])
def test_float32_is_computed_in_tiles_where_vectors_take_half_as_long_again(kinds, share, monkeypatch):
    graph, layouts = network(MatMul(), (1, 256, 768), (768, 768), kinds)
    vectors = product_us(graph, graph.nodes[0], DEVICE, None, 0)
    for times, chosen in ((0.98, TILES), (1.02, None)):
        monkeypatch.setattr(conv_algorithms, "tiles_us", lambda *_, us=times * share * vectors: us)
        assert choose_algorithms(graph, layouts, DEVICE, True).get(0) == chosen


def test_layers_are_cut_so_that_cores_of_unlike_speed_even_out():
    graph, layouts = network(window(), (1, 256, 56, 56), (256, 256, 3, 3), ("uint8", "int8"))
    for cores, least, most in ((1, 1, 2), (2, 4, 8)):
        cost = CostModel(graph, layouts, replace(DEVICE, cores=cores), {0: TILES})
        edges = zip(graph.out(graph.nodes[0]).shape, tile_brick(cost, 0, 4 * cores), strict=True)
        assert np.prod([-(-extent // edge) for extent, edge in edges]) in range(least, most + 1)


def test_parts_take_half_as_much_again_as_the_weights():
    graph, _ = network(MatMul(), (1, 256, 768), (768, 768))
    weights = graph.ins(graph.nodes[0])[1]
    assert added_bytes(graph.nodes[0].op, TILES, weights) == weights.nbytes // 2
    graph, _ = network(MatMul(), (1, 256, 768), (768, 768), ("uint8", "int8"))
    assert added_bytes(graph.nodes[0].op, TILES, graph.ins(graph.nodes[0])[1]) == 0


@pytest.mark.parametrize("edge", [7, 14, 56])
def test_pieces_have_whole_tiles_and_keep_both_cores_busy(edge):
    graph, layouts = network(window(), (1, 512, edge, edge), (512, 512, 3, 3), ("uint8", "int8"))
    cost = CostModel(graph, layouts, replace(DEVICE, cores=2), {0: TILES})
    brick = tile_brick(cost, 0, 8)
    pieces = [-(-extent // b) for extent, b in zip(graph.out(graph.nodes[0]).shape, brick, strict=True)]
    assert np.prod(pieces) >= 2
    assert brick[1] % 32 == 0
    assert brick[2] == edge if edge == 7 else brick[2] * edge >= 32


def test_the_least_work_in_tiles():
    """A tile's product takes 16 cycles, in which vectors of float32 add 512 products."""
    graph, _ = network(MatMul(), (1, 256, 768), (768, 768))
    direct, parts = (peak_work(graph, graph.nodes[0], name) for name in (None, TILES))
    assert parts == pytest.approx(direct * 6 / 16)
    assert peak_ratio(np.dtype(np.uint8), DEVICE, "fp32") == 32
    assert peak_ratio(np.dtype(np.uint8), SERVER, "fp32") < 32
