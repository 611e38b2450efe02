"""The parts of a network's outputs that strips compute, and which strips stand for others."""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import Literal

import numpy as np

from brickrt.graph.ir import Graph
from brickrt.ops.types import Boxes
from brickrt.plan.geometry.bricks import even_edges
from brickrt.plan.stream.band_plan import COLUMNS
from brickrt.plan.stream.swept_tensors import SweptTensors

Standing = Literal["each", "middle", "ends"]
"""The strips that are planned: all, one in the middle, or the outer ones too."""
Piece = tuple[float, float, int]  # from and to which share of the columns, and for how many pieces it stands


def strip_parts(
    graph: Graph, swept: SweptTensors, strips: tuple[int, ...], standing: Standing
) -> list[tuple[dict[str, Boxes], int]]:
    """The parts of the graph's outputs that strips compute, strip by strip, and for how many strips each stands.
    `strips` has how many there are along each axis behind the rows."""
    outputs = [name for name in graph.outputs if name in swept.level]
    columns = {name: graph.types[name].shape[swept.axes.of(name) + 1 :] for name in outputs}
    cuts = []
    for axis, count in enumerate(strips):
        widest = max((shape[axis] for shape in columns.values() if len(shape) > axis), default=1)
        edge = even_edges(widest, COLUMNS if widest >= 8 * COLUMNS else COLUMNS // 4, count)[0]
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


def _standing(pieces: list[Piece], standing: Standing) -> list[Piece]:
    """The pieces that stand for all along an axis; the one in the middle has neighbours on both sides, if any has."""
    return pieces if standing == "each" else [(*pieces[len(pieces) // 2][:2], len(pieces))]
