"""Slices that need no copy: a contiguous range of a stored tensor is read where it lies.

A Take that keeps every axis, or a range of it in order, is one: its readers get the source's strides and another
origin. Most Split and Slice nodes of ONNX become this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from brickrt.graph.ir import Node
from brickrt.ops.operators.move import Take, View
from brickrt.ops.types import Boxes
from brickrt.plan.plan import Plan


@dataclass(frozen=True)
class InplaceSlice:
    """Element i of the tensor is element i + start of `source`."""

    source: str
    start: tuple[int, ...]

    def in_source(self, boxes: Boxes) -> Boxes:
        """The boxes in indices of `source`."""
        return Boxes(boxes.lo + np.asarray(self.start, np.int64), boxes.hi + np.asarray(self.start, np.int64))


def root_of(slices: Mapping[str, InplaceSlice], name: str) -> str:
    """The tensor that a slice is of; any other tensor itself."""
    while name in slices:
        name = slices[name].source
    return name


def resolve(slices: Mapping[str, InplaceSlice], name: str, boxes: Boxes) -> tuple[str, Boxes]:
    """The tensor that a slice is of, and where the boxes are in it."""
    while name in slices:
        boxes, name = slices[name].in_source(boxes), slices[name].source
    return name, boxes


def start_of(slices: Mapping[str, InplaceSlice], name: str, rank: int) -> np.ndarray:
    """Where a slice begins in the stored tensor, zeros for any other tensor, int64 [1, rank]."""
    start = np.zeros((1, rank), np.int64)
    while name in slices:
        start += np.asarray(slices[name].start, np.int64)
        name = slices[name].source
    return start


def find_inplace_slices(plan: Plan) -> dict[str, InplaceSlice]:
    """All tensors of a plan that are read in place, by name.

    What leaves a merged subgraph is stored brick by brick, so the last node of one is no slice in place. Nor is what
    a view reads, whose elements must lie next to one another.
    """
    found = {}
    for subgraph in plan.subgraphs:
        for k in subgraph.nodes:
            node = plan.graph.nodes[k]
            inner = subgraph.strategy == "layerwise" or k != subgraph.nodes[-1]
            start = _start(plan, node) if inner else None
            if start is not None:
                found[node.output] = InplaceSlice(node.inputs[0], start)
    return found


def _start(plan: Plan, node: Node) -> tuple[int, ...] | None:
    """First index of the source along each axis, or None where the node needs a copy."""
    graph = plan.graph
    if not isinstance(node.op, Take) or node.output in graph.outputs or node.inputs[0] in graph.constants:
        return None
    if any(isinstance(graph.nodes[reader].op, View) for reader in graph.consumers.get(node.output, ())):
        return None
    starts = [_contiguous(table) for table in node.op.tables]
    blocked = plan.layouts[node.output] == "blocked"
    if any(s is None for s in starts) or (blocked and (starts[1] or 0) % plan.device.lanes):
        return None
    return tuple(s or 0 for s in starts)


def _contiguous(table: tuple[int, ...] | None) -> int | None:
    """Where an ascending range without gaps begins."""
    if table is None:
        return 0
    whole = table and table[0] >= 0 and table == tuple(range(table[0], table[0] + len(table)))
    return table[0] if whole else None
