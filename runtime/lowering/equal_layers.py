"""What layers read, computed once for equal layers and subgraphs: networks repeat few of them many times."""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence

import numpy as np

from brickrt.ops.types import Boxes, Shape
from brickrt.plan.geometry.bricks import BrickGrid
from brickrt.plan.plan import Plan
from brickrt.plan.structure import Structures
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.lowering.swept_bricks import SweptBricks


class EqualLayers:
    """Remembers regions of the nodes of a plan. Arrays that it gives twice must not be written."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.structures = plan, Structures(plan.graph, plan.layouts)
        self.blocks = {name: plan.device.lanes for name, layout in plan.layouts.items() if layout == "blocked"}
        self._regions: dict[Hashable, tuple[Boxes, list[Boxes | None]]] = {}
        self._swept: dict[Hashable, tuple[Sequence[str], SweptBricks]] = {}
        self._covering: dict[Hashable, tuple[Boxes, tuple[np.ndarray, np.ndarray]]] = {}

    def regions(self, k: int, grid: BrickGrid) -> tuple[Boxes, list[Boxes | None]]:
        """The bricks of node `k` and what they read of each input; None of constants."""
        key = self.structures.kinds[k], grid
        if key not in self._regions:
            graph, boxes = self.plan.graph, grid.boxes()
            node = graph.nodes[k]
            ins, out = graph.ins(node), graph.out(node)
            read = enumerate(node.inputs)
            found = [None if name in graph.constants else node.op.region(i, boxes, ins, out) for i, name in read]
            self._regions[key] = boxes, found
        return self._regions[key]

    def swept(self, subgraph: Subgraph, grid: BrickGrid, slices: Container[str]) -> SweptBricks:
        """What the bricks of a padded subgraph compute; `slices` are tensors that are read in place."""
        names = list(self.structures.names(subgraph.nodes))
        shape = self.structures.of(subgraph.nodes), tuple(name in slices for name in names)
        key = *shape, grid, subgraph.brick, subgraph.band
        if key not in self._swept:
            made = SweptBricks.of(self.plan.graph, subgraph, grid.boxes(), slices, self.blocks)
            self._swept[key] = names, made
        others, made = self._swept[key]
        return made.renamed(dict(zip(others, names, strict=True)))

    def covering(self, grid: BrickGrid, boxes: Boxes, start: Shape) -> tuple[np.ndarray, np.ndarray]:
        """`BrickGrid.covering` of boxes of a part of the tensor that begins at `start`."""
        key = grid, id(boxes), start
        if key not in self._covering:
            moved = Boxes(boxes.lo + np.array(start, np.int64), boxes.hi + np.array(start, np.int64))
            self._covering[key] = boxes, grid.covering(moved if any(start) else boxes)  # held, for its id to be its own
        return self._covering[key][1]
