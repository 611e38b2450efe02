"""Which products read their first factor in place, and how far apart its pixels then lie."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.cuda.products.block_tile import choose_core
from brickrt.ops.cuda.shared_memory import FUSED, FUSED_IN_PLACE, most_with
from brickrt.plan.geometry.in_place import BUFFER, PIECE, kept_bytes, read_in_place, stored_extents
from tests.support.graphs.plan_graphs import Sketch

BANKS = 128  # bytes that are loaded from shared memory at once


@pytest.mark.parametrize("itemsize", [2, 4])
def test_pieces_of_eight_pixels_lie_in_different_banks(itemsize):
    """As far as pixels have whole pieces."""
    width = PIECE // itemsize
    for channels in range(width, 40 * width, width):
        (stored,) = stored_extents(np.array([[1, channels, 6, 7]]), "last", itemsize)
        assert channels <= stored[1] <= channels + width and stored.tolist()[2:] == [6, 7]
        pieces = {pixel * stored[1] * itemsize % BANKS // PIECE for pixel in range(8)}
        assert len(pieces) == 8


def test_rows_of_matrices_are_apart_too():
    assert stored_extents(np.array([[2, 16, 64]]), "plain", 4).tolist() == [[2, 16, 68]]


def chain(channels: int):
    """x → 1×1 a → its absolute b → 1×1 c → depthwise d → 1×1 e of groups"""
    s = Sketch()
    a = s.conv(s.input(1, channels, 8, 8), channels, 1)
    b = s.map("abs", a)
    c = s.conv(b, channels, 1)
    d = s.conv(c, channels, 3, groups=channels)
    s.conv(d, channels, 1, groups=2)
    graph = s.graph()
    return graph, dict.fromkeys(graph.types, "last"), b


def test_factors_from_inside_are_read_in_place():
    """Not those from outside, of groups, of odd channels, or on CUDA cores."""
    graph, layouts, b = chain(32)
    assert read_in_place(graph, layouts, range(5), "tf32") == {2: b}
    assert read_in_place(graph, layouts, range(5), "fp32") == {}
    assert read_in_place(graph, layouts, [2, 3], "tf32") == {}
    assert read_in_place(*chain(24)[:2], range(5), "tf32") == {}


def test_room_is_kept_for_copies_where_some_product_needs_them():
    graph, layouts, _ = chain(32)
    assert kept_bytes(graph, layouts, [1, 2, 3], "tf32") == FUSED_IN_PLACE
    assert kept_bytes(graph, layouts, [0, 1, 2, 3], "tf32") == FUSED
    assert kept_bytes(graph, layouts, [1, 2, 3], "fp32") == FUSED


def test_long_rows_keep_room_for_themselves():
    s = Sketch()
    s.reduce(s.input(1, 64, 8192), 2)
    graph = s.graph()
    assert kept_bytes(graph, dict.fromkeys(graph.types, "plain"), [0], "tf32") == FUSED


@pytest.mark.parametrize(("dtype", "precision"), [("float32", "tf32"), ("float16", "fp32")])
def test_there_is_a_tile_for_every_product_that_is_read_in_place(dtype, precision):
    """As many columns as four gates make together, and depths of whole buffers."""
    dtype = np.dtype(dtype)
    for depth in range(BUFFER // dtype.itemsize, 500, BUFFER // dtype.itemsize):
        core = choose_core(dtype, precision, 50, 96, depth, 32, most_with(FUSED_IN_PLACE), depth)
        assert core.in_place and core.shared <= FUSED_IN_PLACE and depth % (core.tile.k * core.per_word) == 0
