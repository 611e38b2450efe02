"""Turns zeros padded around the input of a convolution into pads of the convolution."""

from __future__ import annotations

from dataclasses import replace

from brickrt.graph.ir import Node
from brickrt.graph.rewriter import Rewriter, origins
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.move import Take


def fold_pads(rewriter: Rewriter) -> None:
    """Merges zero padding of spatial axes into the convolutions that read it; others still read the padded tensor."""
    for node in list(rewriter.nodes.values()):
        pad = rewriter.nodes.get(node.inputs[0]) if node.inputs else None
        if not isinstance(node.op, Conv) or pad is None:
            continue
        pads = zero_pads(pad, rewriter.types[pad.inputs[0]].shape)
        if pads is None:
            continue
        before, after = zip(*pads, strict=True)
        op = replace(
            node.op,
            pads=tuple(p + q for p, q in zip(node.op.pads, before)),
            pads_end=tuple(p + q for p, q in zip(node.op.pads_end, after)),
        )
        rewriter.put(replace(node, op=op, inputs=(pad.inputs[0], *node.inputs[1:]), origin=origins([pad, node])))


def zero_pads(node: Node, shape: tuple[int, ...]) -> list[tuple[int, int]] | None:
    """Zeros that a node puts before and after each spatial axis of a tensor of `shape`; None where it does more."""
    if not isinstance(node.op, Take) or node.op.fill != 0 or any(t is not None for t in node.op.tables[:2]):
        return None
    pads = []
    for table, extent in zip(node.op.tables[2:], shape[2:], strict=True):
        inside = tuple(range(extent))
        before = 0 if table is None or not extent else table.index(0) if 0 in table else -1
        after = 0 if table is None else len(table) - before - extent
        if before < 0 or after < 0 or (table is not None and table != (-1,) * before + inside + (-1,) * after):
            return None
        pads.append((before, after))
    return pads
