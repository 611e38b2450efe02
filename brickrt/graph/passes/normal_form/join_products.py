"""Joins products with one left factor, such as queries, keys and values of attention, into one product.

    x ─┬─ MatMul wq ─ view ─             ┌─ take ─ view ─
       ├─ MatMul wk ─ view ─   →   x ─ MatMul [wq wk wv] ─┼─ take ─ view ─
       └─ MatMul wv ─ view ─             └─ take ─ view ─

The left factor is read once, and one large product is faster than several small ones. Only moves may read the results,
and slices of the joined one must be as free as the results were: elementwise steps are better computed in the tiles of
a product of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np

from brickrt.graph.allowance import allowance, hold
from brickrt.graph.derived_constants import DERIVED
from brickrt.graph.ir import Graph, Node
from brickrt.graph.passes.normal_form.move_chain import MoveChain
from brickrt.graph.rewriter import origins, prune, unused_name
from brickrt.ops.base import Op
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Take, Transpose, View
from brickrt.ops.types import Shape, TensorType


def join_products(graph: Graph) -> Graph:
    """An equal graph in which products of one left factor with constants are one, where only moves read them."""
    groups: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if _may_join(graph, node):
            groups.setdefault(node.inputs[0], []).append(node)
    joined = {group[0].output: group for group in groups.values() if len(group) > 1 and _pays(graph, group)}
    if not joined:
        return graph
    gone = {node.output for group in joined.values() for node in group}
    types, constants, nodes = dict(graph.types), dict(graph.constants), []
    for node in graph.nodes:
        if node.output in joined:
            nodes += _joined(joined[node.output], types, constants)
        elif node.output not in gone:
            nodes.append(node)
    return prune(replace(graph, nodes=tuple(nodes), types=types, constants=constants))


def _may_join(graph: Graph, node: Node) -> bool:
    """Whether a node is a product with one constant matrix, whose result is only moved."""
    op, readers = node.op, graph.consumers.get(node.output, ())
    if type(op) is not MatMul or op.epilogue is not None or node.output in graph.outputs:
        return False
    plain = graph.types[node.inputs[1]].rank == 2 and graph.out(node).size > 0
    constant = all(name in graph.constants for name in node.inputs[1:])
    return plain and constant and all(isinstance(graph.nodes[k].op, View | Transpose) for k in readers)


def _pays(graph: Graph, group: Sequence[Node]) -> bool:
    """Whether slices need no copy, and memory that the model may take holds the joined weights beside their parts."""
    readers = [[graph.nodes[k].op for k in graph.consumers.get(node.output, ())] for node in group]
    free = all(_is_free(take, op) for take, ops in zip(_slices(graph.types, group), readers, strict=True) for op in ops)
    allowed = allowance()
    nbytes = sum(graph.types[node.inputs[1]].nbytes for node in group)
    return free and (allowed is None or allowed.has_room(nbytes))


def _slices(types: Mapping[str, TensorType], group: Sequence[Node]) -> list[tuple[Shape, Take]]:
    """The shape of the joined product, and where in it each product is."""
    ends = list(accumulate((types[node.output].shape[-1] for node in group), initial=0))
    lead = types[group[0].output].shape[:-1]
    whole: tuple[None, ...] = (None,) * len(lead)
    return [((*lead, ends[-1]), Take((*whole, tuple(range(lo, hi))))) for lo, hi in pairwise(ends)]


def _is_free(part: tuple[Shape, Take], reader: Op) -> bool:
    """Whether what reads a slice can read it where it lies."""
    shape, take = part
    chain = MoveChain.of(shape).then(take)
    seen = chain and chain.then(reader)
    ops = seen.operators() if seen else [take, reader]
    return isinstance(reader, Transpose) or isinstance(ops[-1], Take)


def _joined(group: Sequence[Node], types: dict[str, TensorType], constants: dict[str, np.ndarray]) -> list[Node]:
    """The product of all, and a slice of it in place of each."""
    first, bias = group[0], any(isinstance(node.op, MatMul) and node.op.bias for node in group)
    weights = tuple(constants[node.inputs[1]] for node in group)
    parts = [DERIVED.get("joined", weights, lambda: np.concatenate(weights, axis=1))]
    if bias:
        parts.append(np.concatenate([_bias(node, types, constants) for node in group]))
    names = [first.inputs[0]]
    for array in parts:
        names.append(unused_name(f"{first.name}/joined", types))
        types[names[-1]], constants[names[-1]] = TensorType(array.shape, array.dtype), array
        hold(array.nbytes)
    halves = all(isinstance(node.op, MatMul) and node.op.halves for node in group)
    op, output = MatMul(bias=bias, halves=halves), unused_name(f"{first.output}·joined", types)
    types[output] = op.infer([types[name] for name in names])
    takes = [
        Node(node.name, take, (output,), node.output, node.origin)
        for node, (_, take) in zip(group, _slices(types, group), strict=True)
    ]
    return [Node(output, op, tuple(names), output, origins(group)), *takes]


def _bias(node: Node, types: dict[str, TensorType], constants: dict[str, np.ndarray]) -> np.ndarray:
    """The bias of a product, zeros where it has none."""
    kind = types[node.output]
    return constants[node.inputs[2]] if len(node.inputs) > 2 else np.zeros(kind.shape[-1], kind.dtype)
