"""Sweeps: bands compute each row once, and hold all that later ones read."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.ops.operators.move import Take
from brickrt.plan.geometry.bricks import BrickGrid
from brickrt.plan.geometry.halo import needed_boxes
from brickrt.plan.geometry.row_bands import BandSweep, bands_of, sweep
from tests.support.graphs.plan_graphs import Sketch, networks


def two_layers(size: int = 12):
    """x → conv 3×3 → conv 3×3"""
    s = Sketch()
    y = s.conv(s.conv(s.input(1, 4, size, 4), 4), 4)
    return s.graph(), y


def swept_whole(band: int) -> tuple[BandSweep, str, str]:
    graph, out = two_layers()
    boxes = BrickGrid(graph.types[out].shape, graph.types[out].shape).boxes()
    return sweep(graph, [0, 1], boxes, band, 2, ()), graph.nodes[0].output, out


def test_bands_follow_one_another_and_the_last_is_shorter():
    boxes = BrickGrid((1, 2, 10, 3), (1, 2, 5, 3)).boxes()
    bands = bands_of(boxes, 2, 3, 2)
    assert bands.lo[:, 2].tolist() == [0, 2, 4, 5, 7, 9]
    assert bands.hi[:, 2].tolist() == [2, 4, 5, 7, 9, 10]


def test_a_band_computes_what_no_earlier_one_had():
    """Output rows 0-3, 4-7, 8-11 need rows 0-4, 3-8, 7-11 of the layer before."""
    swept, inner, out = swept_whole(4)
    rows = swept.rows[inner]
    assert (rows.lo.tolist(), rows.hi.tolist()) == ([[0, 5, 9]], [[5, 9, 12]])
    assert rows.keep.tolist() == [[0, 3, 7]]
    assert rows.window.tolist() == [6] and rows.kept.tolist() == [2]
    assert swept.computed(out).extents[:, 2].tolist() == [4, 4, 4]


def test_a_brick_in_one_band_computes_all_that_it_needs():
    swept, inner, _ = swept_whole(12)
    assert swept.bands == 1 and swept.computed(inner).extents.tolist() == [[1, 4, 12, 4]]


def test_rows_read_in_reverse_are_not_swept():
    s = Sketch()
    x = s.map("abs", s.input(1, 4, 8, 4))
    s.add(Take((None, None, tuple(range(7, -1, -1)), None)), x)
    graph = s.graph()
    boxes = BrickGrid((1, 4, 8, 4), (1, 4, 8, 4)).boxes()
    assert sweep(graph, [0, 1], boxes, 2, 2, ()).bands == 1


@settings(max_examples=80, deadline=None)
@given(networks(), st.integers(1, 5), st.integers(1, 9))
def test_bands_of_any_network_read_only_rows_that_are_held(graph, band, edge):
    """Whatever a node reads of an inner tensor was computed by this band or before, and is still held."""
    last = len(graph.nodes) - 1
    shape = graph.out(graph.nodes[last]).shape
    if len(shape) < 3 or any(graph.types[n.output].rank != len(shape) for n in graph.nodes):
        return
    brick = (*shape[:2], min(edge, shape[2]), *shape[3:])
    inside, readers = {graph.nodes[last].output}, graph.consumers
    nodes = [last]
    for k in reversed(range(last)):
        name = graph.nodes[k].output
        if readers.get(name) and inside.issuperset(graph.nodes[r].output for r in readers[name]):
            inside.add(name)
            nodes.append(k)
    boxes = BrickGrid(shape, brick).boxes()
    swept = sweep(graph, nodes, boxes, band, 2, ())
    whole = needed_boxes(graph, nodes, boxes)
    for k in nodes:
        node = graph.nodes[k]
        computed = swept.computed(node.output)
        per_brick = computed.volumes.reshape(len(boxes), -1).sum(axis=1)
        assert (per_brick <= whole[node.output].volumes).all()
        some = computed.volumes > 0
        for i, name in enumerate(node.inputs):
            if name in inside:
                region = node.op.region(i, computed, graph.ins(node), graph.out(node))
                held = swept.rows[name]
                read = some & (region.volumes > 0)
                assert (region.lo[read, 2] >= held.keep.reshape(-1)[read]).all()
                assert (region.hi[read, 2] <= held.hi.reshape(-1)[read]).all()
    for name in inside:
        held = swept.rows[name]
        assert (held.hi[:, :-1] <= held.lo[:, 1:]).all()
        assert (np.diff(held.keep, axis=1) >= 0).all()
