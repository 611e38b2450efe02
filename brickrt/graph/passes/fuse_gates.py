"""Fuses gates: a Map of equal parts of a convolution's channels becomes its epilogue, and the parts are not stored.

conv ─┬─ first half ── mul           conv in two parts, epilogue a·b
      └─ second half ──┘         →
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from brickrt.graph.ir import Node
from brickrt.graph.rewriter import Rewriter, origins
from brickrt.ops.expr import Arg, substitute, walk
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import Take

MOST_PARTS = 4
"""A register tile holds a block of channels of each part."""
LANES = 16
"""A depthwise convolution reads whole vectors of channels of each part."""
OPERANDS = 8
"""Tensors that an epilogue may read."""


def fuse_gate(rewriter: Rewriter, node: Node) -> None:
    """Makes a Map the epilogue of the convolution whose parts it reads, if nobody else reads them."""
    if not isinstance(node.op, Map):
        return
    takes = [
        rewriter.nodes[name]
        for name in node.inputs
        if name in rewriter.nodes and isinstance(rewriter.nodes[name].op, Take)
    ]
    conv = rewriter.nodes.get(takes[0].inputs[0]) if takes else None
    if conv is None or not isinstance(conv.op, Conv):
        return
    if not _splits(rewriter, conv, takes, node) or not _may_gate(rewriter, conv, conv.op, node):
        return
    extras = [name for name in node.inputs if name not in {take.output for take in takes}]
    places = [*(take.output for take in sorted(takes, key=_first)), *extras]
    kinds = {e.index: e.dtype for e in walk(node.op.expr) if isinstance(e, Arg)}
    expr = substitute(node.op.expr, {k: Arg(kind, places.index(node.inputs[k])) for k, kind in kinds.items()})
    op = replace(conv.op, epilogue=expr, gate_parts=len(takes))
    rewriter.put(Node(conv.name, op, (*conv.inputs, *extras), node.output, origins([conv, *takes, node])))
    for gone in (*takes, conv):
        rewriter.remove(gone.output)


def _first(take: Node) -> int:
    """The first channel that is taken."""
    assert isinstance(take.op, Take)
    table = take.op.tables[1] or (0,)
    return table[0]


def _splits(rewriter: Rewriter, conv: Node, takes: list[Node], reader: Node) -> bool:
    """Whether the takes are equal parts of the convolution and its only readers, and `reader`, of the same shape, is
    theirs."""
    names = [take.output for take in takes]
    if conv.output in rewriter.outputs or rewriter.readers[conv.output].keys() != set(names):
        return False
    if any(
        rewriter.only_reader(name) is not reader or not _same_shape(rewriter, name, reader.output) for name in names
    ):
        return False
    channels, rank = rewriter.types[conv.output].shape[1], rewriter.types[conv.output].rank
    each, rest = divmod(channels, len(takes))
    tables = {take.op.tables for take in takes if isinstance(take.op, Take)}
    wanted = {(None, tuple(range(k, k + each)), *(None,) * (rank - 2)) for k in range(0, channels, max(each, 1))}
    return rest == 0 and 1 < len(takes) <= MOST_PARTS and tables == wanted


def _same_shape(rewriter: Rewriter, a: str, b: str) -> bool:
    return rewriter.types[a].shape == rewriter.types[b].shape


def _may_gate(rewriter: Rewriter, conv: Node, op: Conv, node: Node) -> bool:
    """Whether kernels can compute the parts of the convolution side by side, and no faster algorithm is lost by it."""
    channels = rewriter.types[conv.output].shape[1]
    if op.epilogue is not None or len(node.inputs) > OPERANDS:
        return False
    assert isinstance(node.op, Map)
    reads = [rewriter.types[name].dtype for name in (*conv.inputs, *node.inputs)]
    if any(dtype != np.float32 for dtype in (*reads, node.op.expr.dtype)):
        return False
    each = rewriter.types[node.output].shape[1]
    depthwise = op.groups == channels == rewriter.types[conv.inputs[0]].shape[1] and each % LANES == 0
    return depthwise or (op.groups == 1 and math.prod(op.kernel) == 1)
