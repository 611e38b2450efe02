"""Fusing: elementwise steps become one Map, or part of the operator before or after them.

conv ─┬─────────── mul ─ div        conv, epilogue x·clip(x+3)/6
      └ add ─ clip ─┘          →
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.graph.passes.fuse_channel_scales import scale_weights
from brickrt.graph.passes.fuse_gates import OPERANDS, fuse_gate
from brickrt.graph.rewriter import Rewriter, origins
from brickrt.ops.expr import Apply, Arg, Expr, substitute, walk
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.reduce import Reduce

OPERATIONS = 64
"""Operations that one expression may have, counted with what is repeated."""
SHARED_BYTES = 1 << 16
"""Constants up to this size are compared by value."""


def fuse(graph: Graph) -> Graph:
    """An equal graph with fewer nodes: equal nodes are one, and Maps join their neighbours."""
    edit = Rewriter(graph)
    _share_constants(edit)
    _share_nodes(edit)
    for output in list(edit.nodes):
        _dedupe_operands(edit, output)
        _absorb_maps(edit, output)
    for output in list(edit.nodes):
        if output in edit.nodes:
            fuse_gate(edit, edit.nodes[output])
    order = edit.order()
    for output in order:
        if output in edit.nodes:
            _into_product(edit, edit.nodes[output], order)
    for output in order:
        if output in edit.nodes:
            scale_weights(edit, edit.nodes[output])
    for output in list(edit.nodes):
        if output in edit.nodes:
            _into_reduce(edit, edit.nodes[output])
            _after_reduce(edit, edit.nodes[output])
    return edit.graph()


def _share_constants(edit: Rewriter) -> None:
    """Small constants of the same value are read under one name."""
    first: dict[tuple, str] = {}
    for name, array in edit.constants.items():
        if array.nbytes > SHARED_BYTES:
            continue
        shared = first.setdefault((array.dtype, array.shape, array.tobytes()), name)
        for reader in [edit.nodes[key] for key in edit.readers.get(name, {})] if shared != name else []:
            edit.put(_reading(reader, {name: shared}))


def _share_nodes(edit: Rewriter) -> None:
    """Common subexpressions: the same operator on the same inputs is computed once."""
    first: dict[tuple, str] = {}
    for output in list(edit.nodes):
        node = edit.nodes.get(output)
        if node is None:
            continue
        shared = first.setdefault((node.op, node.inputs), output)
        if shared != output and output not in edit.outputs:
            twin = edit.nodes[shared]
            edit.substitute(output, shared)
            edit.nodes[shared] = replace(twin, origin=origins([twin, node]))


def _dedupe_operands(edit: Rewriter, output: str) -> None:
    """A tensor that a Map reads twice is one operand."""
    node = edit.nodes.get(output)
    if node is not None and isinstance(node.op, Map) and len(set(node.inputs)) < len(node.inputs):
        names = list(dict.fromkeys(node.inputs))
        edit.put(replace(node, op=Map(_renumbered(node.op.expr, node.inputs, names)), inputs=tuple(names)))


def _absorb_maps(edit: Rewriter, output: str) -> None:
    """Merges into a Map the Maps of the same shape that only it reads, as long as there are any."""
    found = True
    while found:
        found = False
        node = edit.nodes.get(output)
        if node is None or not isinstance(node.op, Map):
            return
        for name in node.inputs:
            producer = edit.nodes.get(name)
            if producer is None or not isinstance(producer.op, Map) or not _joins(edit, producer, node):
                continue
            merged = _merged(producer, node)
            if len(merged.inputs) <= OPERANDS and _operations(_expr(merged)) <= OPERATIONS:
                edit.put(merged)
                edit.remove(producer.output)
                found = True
                break


def _joins(edit: Rewriter, producer: Node, node: Node) -> bool:
    """Whether a tensor goes from one node to the other only, which makes something of the same shape of it."""
    same = edit.types[producer.output].shape == edit.types[node.output].shape
    return same and edit.only_reader(producer.output) is node


def _merged(producer: Node, node: Node) -> Node:
    """One Map that does what two do."""
    inputs = [n for name in node.inputs for n in (producer.inputs if name == producer.output else [name])]
    names = list(dict.fromkeys(inputs))
    inner = _renumbered(_expr(producer), producer.inputs, names)
    expr = _renumbered(_expr(node), node.inputs, names, {producer.output: inner})
    return replace(node, op=Map(expr), inputs=tuple(names), origin=origins([producer, node]))


def _renumbered(
    expr: Expr, inputs: tuple[str, ...], names: list[str], given: dict[str, Expr] | None = None, base: int = 0
) -> Expr:
    """An expression over `inputs` as one over `names`, whose first is operand `base`; `given` are put in directly."""
    given = given or {}
    dtypes = {e.index: e.dtype for e in walk(expr) if isinstance(e, Arg)}
    return substitute(
        expr,
        {
            k: given[inputs[k]] if inputs[k] in given else Arg(dtype, base + names.index(inputs[k]))
            for k, dtype in dtypes.items()
        },
    )


def _into_product(edit: Rewriter, node: Node, order: dict[str, int]) -> None:
    """Makes a Map the epilogue of the last convolution or matrix product before it that only it reads."""
    if not isinstance(node.op, Map):
        return
    before = [edit.nodes[name] for name in node.inputs if name in edit.nodes]
    for producer in sorted(before, key=lambda p: order[p.output], reverse=True):
        merged = _with_epilogue(edit, producer, node) if _joins(edit, producer, node) else None
        if merged is not None:
            edit.put(merged)
            edit.remove(producer.output)
            return


def _with_epilogue(edit: Rewriter, producer: Node, node: Node) -> Node | None:
    """A product that does a Map too; None if the producer is no product or the Map is more than an epilogue can be."""
    if not isinstance(producer.op, Conv | ConvTranspose | MatMul):
        return None
    main = producer.op.main
    extras = list(producer.inputs[main:])
    extras += [name for name in node.inputs if name != producer.output and name not in extras]
    product = producer.op.epilogue or Arg(np.dtype(np.float32), 0)
    parts = producer.op.gate_parts if isinstance(producer.op, Conv) else 1
    expr = _renumbered(_expr(node), node.inputs, extras, {producer.output: product}, parts)
    if len(extras) > OPERANDS or _operations(expr) > OPERATIONS:
        return None
    if not _all_float32(edit.types[producer.output].dtype, expr):
        return None
    op = replace(producer.op, epilogue=expr)
    inputs = (*producer.inputs[:main], *extras)
    return Node(producer.name, op, inputs, node.output, origins([producer, node]))


def _all_float32(product: np.dtype, expr: Expr) -> bool:
    """Epilogues are float32 from the product and the operands to the result; conditions inside may be bool."""
    return all(t == np.float32 for t in (product, expr.dtype, *(e.dtype for e in walk(expr) if isinstance(e, Arg))))


def _into_reduce(edit: Rewriter, node: Node) -> None:
    """Computes a Map inside the reduction that reads it."""
    if not isinstance(node.op, Reduce) or node.op.pre is not None:
        return
    producer = edit.nodes.get(node.inputs[0])
    if producer is None or not isinstance(producer.op, Map) or edit.only_reader(producer.output) is not node:
        return
    shape = edit.types[producer.output].shape
    full = next((name for name in producer.inputs if edit.types[name].shape == shape), None)
    if full is None:
        return
    names = [full, *(name for name in producer.inputs if name != full)]
    pre = _renumbered(producer.op.expr, producer.inputs, names)
    op = replace(node.op, pre=pre)
    edit.put(replace(node, op=op, inputs=tuple(names), origin=origins([producer, node])))
    edit.remove(producer.output)


def _after_reduce(edit: Rewriter, node: Node) -> None:
    """Applies a Map of one operand to what a reduction gives."""
    if not isinstance(node.op, Map) or len(node.inputs) != 1:
        return
    producer = edit.nodes.get(node.inputs[0])
    if producer is None or not isinstance(producer.op, Reduce) or not _joins(edit, producer, node):
        return
    combined = producer.op.post or Arg(edit.types[producer.output].dtype, 0)
    op = replace(producer.op, post=substitute(node.op.expr, {0: combined}))
    edit.put(Node(producer.name, op, producer.inputs, node.output, origins([producer, node])))
    edit.remove(producer.output)


def _reading(node: Node, names: dict[str, str]) -> Node:
    return replace(node, inputs=tuple(names.get(name, name) for name in node.inputs))


def _expr(node: Node) -> Expr:
    """The expression of a Map."""
    assert isinstance(node.op, Map)
    return node.op.expr


def _operations(expr: Expr) -> int:
    return sum(isinstance(e, Apply) for e in walk(expr))
