"""The parts of a network's outputs that strips compute, and which strips stand for others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from typing import Literal

import numpy as np

from brickrt.graph.ir import Graph
from brickrt.ops.types import Boxes
from brickrt.plan.geometry.bricks import even_edges
from brickrt.plan.geometry.halo import whole_blocks
from brickrt.plan.stream.band_plan import COLUMNS
from brickrt.plan.stream.band_schedule import Network
from brickrt.plan.stream.swept_tensors import SweptTensors

Standing = Literal["each", "middle", "ends"]
"""The strips that are planned: all, one in the middle, or the outer ones too."""
Piece = tuple[float, float, int]  # from and to which share of the columns, and for how many pieces it stands


def strip_parts(
    graph: Graph, swept: SweptTensors, strips: tuple[int, ...], standing: Standing
) -> list[tuple[dict[str, Boxes], int]]:
    """The parts of the graph's outputs that strips compute, strip by strip, and for how many strips each stands.
    `strips` has how many there are along each axis behind the rows."""
    outputs, columns = _columns(graph, swept)
    cuts = []
    for widest, edge in zip(_widest(columns, strips), strip_edges(graph, swept, strips), strict=True):
        ends = np.minimum(np.arange(-(-widest // edge) + 1) * edge, widest) / max(1, widest)
        cuts.append(_standing([(float(a), float(b), 1) for a, b in pairwise(ends)], standing))
    found = []
    for ranges in product(*cuts):
        part = {name: Boxes.whole(graph.types[name].shape) for name in outputs}
        for axis, (start, end, _) in enumerate(ranges):
            for name, box in ((n, box) for n, box in part.items() if len(columns[n]) > axis):
                k, extent = swept.axes.of(name) + 1 + axis, columns[name][axis]
                box.lo[:, k], box.hi[:, k] = round(start * extent), round(end * extent)
        found.append((part, math.prod(times for _, _, times in ranges)))
    return found


def strip_edges(graph: Graph, swept: SweptTensors, strips: tuple[int, ...]) -> tuple[int, ...]:
    """Columns of a strip along each axis behind the rows: two numbers of strips with the same edges are one cut."""
    _, columns = _columns(graph, swept)
    return tuple(
        even_edges(widest, COLUMNS if widest >= 8 * COLUMNS else COLUMNS // 4, count)[0]
        for widest, count in zip(_widest(columns, strips), strips, strict=True)
    )


def inner_strips(graph: Graph, swept: SweptTensors, strips: tuple[int, ...]) -> tuple[int, int]:
    """The numbers of the strip in the middle along each axis, and of the one before it along the first."""
    _, columns = _columns(graph, swept)
    edges = strip_edges(graph, swept, strips)
    counts = [-(-widest // edge) for widest, edge in zip(_widest(columns, strips), edges, strict=True)]
    middle = 0
    for count in counts:
        middle = middle * count + count // 2
    return middle, max(0, middle - math.prod(counts[1:]))


def strip_extents(network: Network, parts: Sequence[Mapping[str, Boxes]]) -> dict[str, np.ndarray]:
    """The extents that strips hold of each tensor that is stored in the last pass, int64 [strips, rank]: of what they
    read of all rows. `parts` are those that they compute of the graph's outputs."""
    graph, swept = network.graph, network.swept
    known = {name for name, level in swept.collected.items() if level < swept.passes - 1} | network.resident
    known |= set(network.spilled)
    stored = {graph.nodes[unit.nodes[-1]].output for unit in network.units} | known | set(graph.inputs)
    needed = {name: _stacked([part[name] for part in parts]) for name in parts[0]}
    for node in reversed(graph.nodes):
        if node.output not in needed or node.output in known:
            continue
        for i, name in enumerate(node.inputs):
            if name in graph.constants:
                continue
            region = node.op.region(i, needed[node.output], graph.ins(node), graph.out(node))
            if name in network.blocks:
                region = whole_blocks(region, network.blocks[name], graph.types[name].shape)
            needed[name] = region.union(needed[name]) if name in needed else region
    return {name: boxes.extents for name, boxes in needed.items() if name in stored and name in swept.level}


def _columns(graph: Graph, swept: SweptTensors) -> tuple[list[str], dict[str, tuple[int, ...]]]:
    """The outputs that have rows, and the extents of each behind them."""
    outputs = [name for name in graph.outputs if name in swept.level]
    return outputs, {name: graph.types[name].shape[swept.axes.of(name) + 1 :] for name in outputs}


def _widest(columns: Mapping[str, tuple[int, ...]], strips: tuple[int, ...]) -> list[int]:
    """The largest extent of any output along each axis that strips cut."""
    return [max((shape[k] for shape in columns.values() if len(shape) > k), default=1) for k in range(len(strips))]


def _stacked(boxes: Sequence[Boxes]) -> Boxes:
    return Boxes(np.concatenate([box.lo for box in boxes]), np.concatenate([box.hi for box in boxes]))


def _standing(pieces: list[Piece], standing: Standing) -> list[Piece]:
    """The pieces that stand for all along an axis; the one in the middle has neighbours on both sides, if any has."""
    return pieces if standing == "each" else [(*pieces[len(pieces) // 2][:2], len(pieces))]
