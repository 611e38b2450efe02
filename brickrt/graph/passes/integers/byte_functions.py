"""Activations between quantized tensors as functions of a byte, which kernels look up.

product ─ Map over its sums, a bias …  = byte ─ many steps = byte      two Maps: the first joins the product
"""

from __future__ import annotations

from dataclasses import replace

from brickrt.graph.ir import Node
from brickrt.graph.passes.integers.integer_epilogues import is_integer
from brickrt.graph.rewriter import Rewriter, unused_name
from brickrt.ops.byte_functions import is_byte, is_byte_function
from brickrt.ops.expr import Apply, Arg, Expr, distinct
from brickrt.ops.operators.map import Map


def split_byte_function(rewriter: Rewriter, node: Node) -> None:
    """Makes two Maps of one that reads an integer product, where the later one is a function of a byte alone."""
    if not isinstance(node.op, Map) or not is_byte(node.op.expr.dtype) or is_byte_function(node.op.expr):
        return
    producers = [rewriter.nodes[name] for name in node.inputs if name in rewriter.nodes]
    if len(producers) != 1 or not is_integer(rewriter, producers[0]):
        return
    found = _split(node.op.expr)
    if found is None:
        return
    inner, outer = found
    first = Node(node.name, Map(inner), node.inputs, unused_name(f"{node.output}/byte", rewriter.types), node.origin)
    rewriter.insert(first, node.output)
    rewriter.put(replace(node, op=Map(outer), inputs=(first.output,)))


def is_looked_up(rewriter: Rewriter, node: Node) -> bool:
    """Whether a Map is a function of the bytes that an integer product stores: a look at a table for each is quicker
    than its steps in the product's epilogue."""
    if not isinstance(node.op, Map) or not is_byte_function(node.op.expr):
        return False
    producers = [rewriter.nodes[name] for name in node.inputs if name in rewriter.nodes]
    return any(is_integer(rewriter, producer) for producer in producers)


def _split(expr: Expr) -> tuple[Expr, Expr] | None:
    """A byte that an expression computes, and the expression as a function of many steps of this byte alone."""
    candidates = [e for e in distinct(expr) if isinstance(e, Apply) and e is not expr and is_byte(e.dtype)]
    for inner in sorted(candidates, key=lambda e: len(distinct(e))):
        outer = _with_byte(expr, inner, {})
        if is_byte_function(outer):
            return inner, outer
    return None


def _with_byte(expr: Expr, inner: Expr, done: dict[int, Expr]) -> Expr:
    """The expression with operand 0 in place of what equals `inner`; other operands keep numbers above 0."""
    if id(expr) not in done:
        if expr == inner:
            done[id(expr)] = Arg(inner.dtype, 0)
        elif isinstance(expr, Apply):
            done[id(expr)] = replace(expr, args=tuple(_with_byte(a, inner, done) for a in expr.args))
        else:
            done[id(expr)] = Arg(expr.dtype, expr.index + 1) if isinstance(expr, Arg) else expr
    return done[id(expr)]
