"""Products that a model computes in float16: a factor that is float16 there times another or a constant, with a result
that is rounded to float16 at once.

x float16 ─ Map to float32 ─ Conv, float32 ─ Map to float16 ─ …

Casts right before and right behind a product make no difference: what they leave is as the builder of one in float16
has it. A product that goes on in float32 has another graph.
"""

from __future__ import annotations

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.graph.passes.retype import expressions
from brickrt.ops.base import Op
from brickrt.ops.expr import Apply, Arg, Expr
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import Concat, Take, Transpose, View
from brickrt.ops.operators.product import Product, parts_of
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise

F16, F32 = np.dtype(np.float16), np.dtype(np.float32)
MOVES = Concat | Take | Transpose | View


def half_products(graph: Graph) -> set[str]:
    """The outputs of such products."""
    narrow = _narrow(graph)
    wide = {name for name in graph.constants if graph.types[name].dtype in (F16, F32)}  # folded, in float32
    return {
        node.output
        for node in graph.nodes
        if isinstance(node.op, Product)
        and node.inputs[0] in narrow
        and node.inputs[1] in narrow | wide
        and (_rounds_sums(node.op) or _rounds(graph, node.output))
    }


def _rounds_sums(op: Product) -> bool:
    """Whether its own epilogue rounds what a product sums."""
    return op.epilogue is not None and _rounds_args(op.epilogue, set(range(parts_of(op))))


def _narrow(graph: Graph) -> set[str]:
    """Tensors that float16 holds: of its type, or widened from it, and then only moved."""
    found = {name for name in (*graph.inputs, *graph.constants) if graph.types[name].dtype == F16}
    for node in graph.nodes:
        moved = isinstance(node.op, MOVES) and found.issuperset(node.inputs)
        made = expressions(node.op)
        if graph.out(node).dtype == F16 or moved or (made and all(map(_widens, made))):
            found.add(node.output)
    return found


def _widens(expr: Expr) -> bool:
    return isinstance(expr, Apply) and expr.fn == "cast" and (expr.args[0].dtype, expr.dtype) == (F16, F32)


def _rounds(graph: Graph, name: str) -> bool:
    """Whether all that reads a tensor rounds it to float16 first; moves may come before."""
    if graph.types[name].dtype == F16:
        return True
    readers = [graph.nodes[k] for k in graph.consumers.get(name, ())]
    return name not in graph.outputs and bool(readers) and all(_rounds_operand(graph, node, name) for node in readers)


def _rounds_operand(graph: Graph, node: Node, name: str) -> bool:
    """Whether a node does so. Of a product, the epilogue's operands begin behind the sums' parts."""
    op, at = node.op, {k for k, each in enumerate(node.inputs) if each == name}
    if isinstance(op, MOVES):
        return _rounds(graph, node.output)
    if isinstance(op, Product) and op.epilogue is not None and min(at) >= op.main:
        return _rounds_args(op.epilogue, {k - op.main + parts_of(op) for k in at})
    made = _readings(op)
    return bool(made) and all(_rounds_args(expr, at) for expr in made)


def _readings(op: Op) -> list[Expr]:
    """The expressions that read elements of inputs; none where they are read otherwise."""
    if isinstance(op, Map):
        return [op.expr]
    if isinstance(op, Reduce):
        return [] if op.pre is None else [op.pre]
    if isinstance(op, Rowwise):
        return [*(step.pre for step in op.steps), op.expr, *([] if op.kept is None else [op.kept])]
    return []


def _rounds_args(expr: Expr, at: set[int]) -> bool:
    """Whether an expression has these operands nowhere but in casts to float16."""
    if isinstance(expr, Arg):
        return expr.index not in at
    if not isinstance(expr, Apply):
        return True
    if expr.fn == "cast" and expr.dtype == F16 and isinstance(expr.args[0], Arg):
        return True
    return all(_rounds_args(arg, at) for arg in expr.args)
