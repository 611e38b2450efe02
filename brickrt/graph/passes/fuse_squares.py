"""Fuses differences from a mean, and their squares, into the sum of these: variances as exporters write them out.

x ─┬─ mean ─┐                            x ─┬─ mean ─┬──────────────┐
   └─────── sub ─┬─ square ─ mean   →       ├────────┴ mean of (x - mean)²
                 └─ …                       └─────── sub ─ …

The differences are left to one reader, which can absorb them: they are never stored.
"""

from __future__ import annotations

from dataclasses import replace

from brickrt.graph.ir import Node
from brickrt.graph.rewriter import Rewriter, origins
from brickrt.ops.expr import Arg, Expr, substitute
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.reduce import Reduce

STEPS = 2
"""A difference, and its square."""


def fuse_squares(rewriter: Rewriter, node: Node) -> None:
    """Makes a sum of squared differences, from what is the same along its axes, compute them itself."""
    op = node.op
    if not isinstance(op, Reduce) or op.pre is not None:
        return
    inner: list[Node] = []
    expr: Expr = Arg(rewriter.types[node.inputs[0]].dtype, 0)
    names = node.inputs
    while len(names) == 1 and len(inner) < STEPS:
        producer = rewriter.nodes.get(names[0])
        if producer is None or not isinstance(producer.op, Map):
            return
        inner.append(producer)
        names, expr = producer.inputs, substitute(expr, {0: producer.op.expr})
    whole = rewriter.types[node.inputs[0]].shape
    order = sorted(range(len(names)), key=lambda k: rewriter.types[names[k]].shape != whole)
    ins = [rewriter.types[names[k]] for k in order]
    op = replace(op, pre=substitute(expr, {k: Arg(kind.dtype, i) for i, (k, kind) in enumerate(zip(order, ins))}))
    if len(ins) < 2 or ins[0].shape != whole or op.difference(ins) is None:
        return
    rewriter.put(replace(node, op=op, inputs=tuple(names[k] for k in order), origin=origins([*inner[::-1], node])))
    for one in inner:
        if not rewriter.readers[one.output] and one.output not in rewriter.outputs:
            rewriter.remove(one.output)
