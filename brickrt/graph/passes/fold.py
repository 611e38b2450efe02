"""Folding: nodes with constant inputs are computed now, nodes that do nothing are removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from brickrt.graph.allowance import allowance, hold
from brickrt.graph.derived_constants import evaluated, evaluated_densely
from brickrt.graph.host.static_values import quick_enough, small_enough
from brickrt.graph.ir import Graph, Node
from brickrt.graph.passes.fold_affine import fold_affine
from brickrt.graph.passes.fold_pads import fold_pads
from brickrt.graph.rewriter import Rewriter, origins
from brickrt.graph.room import available_bytes, own_bytes
from brickrt.graph.time_budget import TooLong, folding
from brickrt.ops.base import Op
from brickrt.ops.expr import Apply, Arg, Const, Expr, const, substitute
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import Concat, Take, Transpose, View
from brickrt.ops.types import TensorType


def fold(graph: Graph) -> Graph:
    """An equal graph: constants computed, scalars put in expressions, identities removed, scales and pads put in
    convolutions."""
    rewriter = Rewriter(graph)
    for node in rewriter.walk():
        if not _fold_constant(rewriter, node):
            _inline_scalars(rewriter, node)
            _join_moves(rewriter, rewriter.nodes[node.output])
            _drop_identity(rewriter, rewriter.nodes[node.output])
    fold_pads(rewriter)
    fold_affine(rewriter)
    return rewriter.graph()


def _fold_constant(rewriter: Rewriter, node: Node) -> bool:
    """Replaces a node whose inputs are all constants, except where the result takes much more room."""
    if not all(name in rewriter.constants for name in node.inputs) or node.output in rewriter.outputs:
        return False
    operands = [rewriter.constants[name] for name in node.inputs]
    result, widened = rewriter.types[node.output], isinstance(node.op, Map) and node.op.widens
    small = small_enough([result], operands) or _may_widen(node.op, result, operands)
    if not small or not quick_enough([node], rewriter.types):
        return False
    try:
        with folding(result.size + sum(operand.size for operand in operands)):
            value = (evaluated if widened else evaluated_densely)(node.op, operands)
    except TooLong:
        return False
    rewriter.constants[node.output] = value
    hold(own_bytes(value, operands))
    rewriter.remove(node.output)
    return True


def _may_widen(op: Op, result: TensorType, operands: Sequence[np.ndarray]) -> bool:
    """Whether elements, such as weights in one or two bytes, may take more bytes, in each run or now: those of float16
    become as narrow again (`half_weights.py`)."""
    if not isinstance(op, Map) or result.size > max(operand.size for operand in operands):
        return False
    allowed = allowance()
    return (0 if allowed is None else allowed.held) + result.nbytes <= available_bytes() // 2


def _inline_scalars(rewriter: Rewriter, node: Node) -> None:
    """Puts one-element constants of a Map in its expression, where that leaves the shape as it is."""
    op = node.op
    if not isinstance(op, Map):
        return
    expr = op.expr
    for name in _scalars(rewriter, node):
        others = tuple(n for n in node.inputs if n != name)
        if (
            np.broadcast_shapes(*(rewriter.types[n].shape for n in others), ()) != rewriter.types[node.output].shape
            or not others
        ):
            continue
        array = rewriter.constants[name]
        expr = substitute(
            expr,
            {
                k: const(array.reshape(()).item(), array.dtype)
                if n == name
                else Arg(rewriter.types[n].dtype, others.index(n))
                for k, n in enumerate(node.inputs)
            },
        )
        node = replace(node, op=Map(expr), inputs=others)
    simple = _without_neutral(expr)
    if simple is not op.expr or node is not rewriter.nodes[node.output]:
        rewriter.put(replace(node, op=Map(simple)))


def _scalars(rewriter: Rewriter, node: Node) -> list[str]:
    """Constant operands of one finite element (expressions are text in the end, and infinity has no literal)."""
    constants = {name: rewriter.constants[name] for name in node.inputs if name in rewriter.constants}
    return [name for name, array in constants.items() if array.size == 1 and np.isfinite(array).all()]


def _without_neutral(expr: Expr) -> Expr:
    """The expression without multiplications and divisions by one and subtractions of zero."""
    if not isinstance(expr, Apply):
        return expr
    args = tuple(_without_neutral(a) for a in expr.args)
    match expr.fn, args:
        case ("mul" | "div", (x, Const(value=1))) | ("mul", (Const(value=1), x)) | ("sub", (x, Const(value=0))):
            return x
    return expr if all(a is b for a, b in zip(args, expr.args)) else Apply(expr.dtype, expr.fn, args)


def _join_moves(rewriter: Rewriter, node: Node) -> None:
    """Joins Views of Views and Transposes of Transposes; a Transpose that keeps memory's order becomes a View."""
    producer = rewriter.nodes.get(node.inputs[0]) if node.inputs else None
    op: Op
    match node.op, producer:
        case View(), Node(op=View()):
            op, inputs = node.op, producer.inputs
        case Transpose(perm=perm), Node(op=Transpose(perm=first)):
            op, inputs = Transpose(tuple(first[k] for k in perm)), producer.inputs
        case _:
            op, inputs, producer = node.op, node.inputs, None
    if isinstance(op, Transpose) and _keeps_memory(op.perm, rewriter.types[inputs[0]].shape):
        op = View(rewriter.types[node.output].shape)
    if op is not node.op or inputs != node.inputs:
        rewriter.put(replace(node, op=op, inputs=inputs, origin=origins([*([producer] if producer else []), node])))


def _keeps_memory(perm: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    long = [k for k in perm if shape[k] != 1]
    return long == sorted(long) and perm != tuple(range(len(perm)))


def _drop_identity(rewriter: Rewriter, node: Node) -> None:
    """Removes a node whose output is its only input."""
    if len(node.inputs) != 1 or rewriter.types[node.inputs[0]] != rewriter.types[node.output]:
        return
    match node.op:
        case Map(expr=Arg()) | View() | Concat():
            same = True
        case Transpose(perm=perm):
            same = perm == tuple(range(len(perm)))
        case Take(tables=tables):
            extents = rewriter.types[node.output].shape
            same = all(t is None or t == tuple(range(d)) for t, d in zip(tables, extents))
        case _:
            same = False
    if same:
        rewriter.substitute(node.output, node.inputs[0])
