"""Channels first: norms and products over the last axis between two transposes are norms and pointwise convolutions.

x [N, C, H, W] ─ transpose ─ norm ─ product ─ transpose ─     →     x ─ norm over axis 1 ─ 1×1 convolution ─

Every element is computed from the same numbers as before, Inf and NaN included; only the order of sums may differ, as
it does between kernels. What is transposed is counted in elements: a region of nodes changes as a whole, where less is
left.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from brickrt.graph.graph_writer import GraphWriter
from brickrt.graph.ir import Graph, Node
from brickrt.graph.passes.algebra.channel_regions import (
    ChannelRegion,
    channel_regions,
    first_axes,
    last_axes,
    producer,
    readers,
    to_first,
    to_last,
)
from brickrt.graph.passes.fold import fold
from brickrt.ops.base import Op
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Transpose, View
from brickrt.ops.operators.reduce import Reduce


def channels_first(graph: Graph) -> Graph:
    """An equal graph, in which regions with channels last have them first where that saves transposes."""
    region_of = {name: region for region in channel_regions(graph) for name in region.nodes}
    if not region_of:
        return graph
    return fold(_FirstWriter(graph, region_of).written())


class _FirstWriter(GraphWriter):
    """The new graph, node by node. `names` are the tensors that have channels first, by what they stand for."""

    def __init__(self, graph: Graph, region_of: dict[str, ChannelRegion]) -> None:
        super().__init__(graph)
        self.region_of = region_of
        self.names: dict[tuple[str, tuple[int, ...]], str] = {}

    def place(self, node: Node) -> None:
        """Adds a node, or what it is with channels first and what its other readers need."""
        region = self.region_of.get(node.output)
        if region is None:
            before = self.region_of.get(node.inputs[0]) if node.inputs and to_first(node) else None
            if before is None:
                self.add(node)
            else:
                view, first = View(self.graph.out(node).shape), self.name(node.inputs[0], before)
                self.emit(view, (first,), node, output=node.output)
            return
        inputs = self.product(node, region) if isinstance(node.op, MatMul) else self.read(node, region)
        new = self.emit(self.operator(node, region), inputs, node, hint=f"{node.output}:first")
        self.names[node.output, region.space] = new
        outside = [reader for reader in readers(self.graph, node.output) if self.region_of.get(reader.output) is None]
        if node.output in self.graph.outputs or any(not to_first(reader) for reader in outside):
            self.turn_back(node, new)

    def turn_back(self, node: Node, new: str) -> None:
        """The tensor under its own name, channels last, for readers outside."""
        shape = self.graph.out(node).shape
        view = self.emit(View((shape[0], shape[-1], *shape[1:-1])), (new,), node, hint=f"{node.output}:first")
        self.emit(Transpose(last_axes(len(shape))), (view,), node, output=node.output)

    def read(self, node: Node, region: ChannelRegion) -> tuple[str, ...]:
        """What a node of the region reads, channels first."""
        known = self.graph.constants
        return tuple(self.constant(n, node, region) if n in known else self.name(n, region) for n in node.inputs)

    def product(self, node: Node, region: ChannelRegion) -> tuple[str, ...]:
        """What a matrix product reads as a convolution."""
        x, factor, *bias = node.inputs
        array = self.constants[factor].T
        weights = self.bind(array.reshape(*array.shape, *(1,) * len(region.space)), f"{factor}:first")
        return (self.name(x, region), weights, *bias)

    def name(self, name: str, region: ChannelRegion) -> str:
        """A tensor that is no constant, channels first and with the region's space."""
        key = (name, region.space)
        if key not in self.names:
            kind, turn = self.graph.types[name], producer(self.graph, name)
            node = turn or Node(name, View(kind.shape), (), name)
            if turn is not None and to_last(turn) and turn.inputs[0] not in self.region_of:
                source = turn.inputs[0]
            else:
                source = self.emit(Transpose(first_axes(kind.rank)), (name,), node, hint=f"{name}:first")
            self.names[key] = self.emit(View(region.first(kind.shape)), (source,), node, hint=f"{name}:first")
        return self.names[key]

    def constant(self, name: str, node: Node, region: ChannelRegion) -> str:
        """A constant that broadcasts to tensors of the region, rearranged as they are."""
        array, rank = self.constants[name], self.graph.out(node).rank
        if array.ndim == 0:
            return name
        full = array.reshape((1,) * (rank - array.ndim) + array.shape)
        moved = np.moveaxis(full, -1, 1).reshape(region.first(full.shape))
        return self.bind(moved, f"{name}:first")

    def operator(self, node: Node, region: ChannelRegion) -> Op:
        """What a node of the region is with channels first."""
        op, rank = node.op, len(region.space)
        if isinstance(op, MatMul):
            ones, none = (1,) * rank, (0,) * rank
            return Conv(ones, ones, ones, none, none, bias=op.bias, halves=op.halves)
        if isinstance(op, View):
            return View(region.first(self.graph.out(node).shape))
        assert isinstance(op, Map | Reduce)
        return op if isinstance(op, Map) else replace(op, axes=self.axes(op, self.graph.ins(node)[0].rank, region))

    def axes(self, op: Reduce, rank: int, region: ChannelRegion) -> tuple[int, ...]:
        """The axes of a reduction where they are with channels first."""
        merged = rank - 2 != len(region.space)
        space = range(2, 2 + len(region.space))
        places = {0: (0,), rank - 1: (1,)} | {k: tuple(space) if merged else (k + 1,) for k in range(1, rank - 1)}
        return tuple(sorted(place for axis in op.axes for place in places[axis]))
