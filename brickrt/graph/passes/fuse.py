"""Fusing: elementwise steps become one Map, or part of the operator before or after them.

conv ─┬─────────── mul ─ div        conv, epilogue x·clip(x+3)/6
      └ add ─ clip ─┘          →
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.graph.passes.fuse_channel_scales import fuse_channel_scales
from brickrt.graph.passes.fuse_gates import OPERANDS, fuse_gate
from brickrt.graph.passes.fuse_squares import fuse_squares
from brickrt.graph.passes.integers.byte_functions import is_looked_up, split_byte_function
from brickrt.graph.passes.integers.integer_epilogues import into_integer_product, simplify_integer_epilogue
from brickrt.graph.rewriter import Rewriter, origins
from brickrt.ops.byte_functions import is_byte_function
from brickrt.ops.expr import Apply, Arg, Expr, ordered, substitute, walk
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.product import Product
from brickrt.ops.operators.product_types import SUMS, product_type
from brickrt.ops.operators.reduce import Reduce

OPERATIONS = 64
"""Most operations of an expression, where parts that are used twice count twice."""
LOOKED_UP = 512
"""The same of functions of a byte whose value is a byte, which are tables."""
WIDENING = 3
"""Operations that DequantizeLinear is, at most."""
SHARED_BYTES = 1 << 16
"""Constants up to this size are compared by value."""
FLOATS = frozenset({np.dtype(np.float32)})
"""Operands and results of epilogues; conditions inside may be bool."""
HALVES = FLOATS | {np.dtype(np.float16)}


def fuse(graph: Graph) -> Graph:
    """An equal graph with fewer nodes: equal nodes are one, and Maps join their neighbours."""
    rewriter = Rewriter(graph)
    _share_constants(rewriter)
    _share_nodes(rewriter)
    for node in rewriter.walk():
        into_integer_product(rewriter, node, map_into_product)
    for node in rewriter.walk():
        fuse_squares(rewriter, node)
    for node in rewriter.walk():
        _dedupe_operands(rewriter, node)
        _absorb_maps(rewriter, node.output)
    for node in rewriter.walk():
        split_byte_function(rewriter, node)
    for node in rewriter.walk():
        fuse_gate(rewriter, node)
    order = rewriter.order()
    for node in rewriter.walk():
        _into_product(rewriter, node, order)
    for node in rewriter.walk():
        fuse_channel_scales(rewriter, node)
    for node in rewriter.walk():
        _into_reduce(rewriter, node)
        _after_reduce(rewriter, node)
    return rewriter.graph()


def fuse_half_epilogues(graph: Graph) -> Graph:
    """The graph with Maps that read or give float16 as epilogues of products, too: the CPU's kernels widen and round in
    registers."""
    rewriter = Rewriter(graph)
    order = rewriter.order()
    for node in rewriter.walk():
        _into_product(rewriter, node, order, HALVES)
    return rewriter.graph()


def _share_constants(rewriter: Rewriter) -> None:
    """Makes readers of equal small constants read them under one name."""
    first: dict[tuple, str] = {}
    for name, array in rewriter.constants.items():
        if array.nbytes > SHARED_BYTES:
            continue
        shared = first.setdefault((array.dtype, array.shape, array.tobytes()), name)
        for reader in [rewriter.nodes[key] for key in rewriter.readers.get(name, {})] if shared != name else []:
            rewriter.put(_reading(reader, {name: shared}))


def _share_nodes(rewriter: Rewriter) -> None:
    """Common subexpressions: the same operator on the same inputs is computed once."""
    first: dict[tuple, str] = {}
    for node in rewriter.walk():
        shared = first.setdefault((node.op, node.inputs), node.output)
        if shared != node.output and node.output not in rewriter.outputs:
            twin = rewriter.nodes[shared]
            rewriter.substitute(node.output, shared)
            rewriter.nodes[shared] = replace(twin, origin=origins([twin, node]))


def _dedupe_operands(rewriter: Rewriter, node: Node) -> None:
    """Makes a tensor that a Map reads twice one operand."""
    if isinstance(node.op, Map) and len(set(node.inputs)) < len(node.inputs):
        names = list(dict.fromkeys(node.inputs))
        rewriter.put(replace(node, op=Map(_renumbered(node.op.expr, node.inputs, names)), inputs=tuple(names)))


def _absorb_maps(rewriter: Rewriter, output: str) -> None:
    """Merges the Maps of the same shape that only this Map reads into it, as long as there are any."""
    found = True
    while found:
        found = False
        node = rewriter.nodes.get(output)
        if node is None or not isinstance(node.op, Map) or _readers_widen(rewriter, node):
            return
        for name in node.inputs:
            producer = rewriter.nodes.get(name)
            if producer is None or not isinstance(producer.op, Map):
                continue
            if not _joins(rewriter, producer, node) and not _widens_for(rewriter, producer, node):
                continue
            merged = _merged(producer, node)
            if len(merged.inputs) <= OPERANDS and _is_short(map_expression(merged)):
                rewriter.put(merged)
                if not rewriter.readers.get(producer.output) and producer.output not in rewriter.outputs:
                    rewriter.remove(producer.output)
                found = True
                break


def _is_short(expr: Expr) -> bool:
    """Whether an expression may be that of one Map."""
    operations = _operations(expr)
    return operations <= OPERATIONS or (operations <= LOOKED_UP and is_byte_function(expr))


def _widens_for(rewriter: Rewriter, producer: Node, node: Node) -> bool:
    """Whether a node of the same shape reads bytes that another converts in few operations: each of several readers
    does so for itself, rather than read four times as much."""
    same = rewriter.types[producer.output].shape == rewriter.types[node.output].shape
    return same and _widens(rewriter, producer)


def _readers_widen(rewriter: Rewriter, node: Node) -> bool:
    """Whether all of several readers convert a node's bytes for themselves: then it is not computed with what gives
    these, of which its floats would be stored."""
    readers = [rewriter.nodes[key] for key in rewriter.readers.get(node.output, {})]
    convert = all(
        isinstance(r.op, Reduce) or (isinstance(r.op, Map) and _widens_for(rewriter, node, r)) for r in readers
    )
    return len(readers) > 1 and convert and node.output not in rewriter.outputs and _widens(rewriter, node)


def _widens(rewriter: Rewriter, node: Node) -> bool:
    """Whether a Map converts bytes in few operations."""
    source, result = (rewriter.types[name] for name in (node.inputs[0], node.output))
    widens = len(node.inputs) == 1 and source.dtype.itemsize == 1 < result.dtype.itemsize
    return widens and source.shape == result.shape and _operations(map_expression(node)) <= WIDENING


def _joins(rewriter: Rewriter, producer: Node, node: Node) -> bool:
    """Whether a node reads the output of another, nobody else does, and its own output has the same shape."""
    same = rewriter.types[producer.output].shape == rewriter.types[node.output].shape
    return same and rewriter.only_reader(producer.output) is node


def _merged(producer: Node, node: Node) -> Node:
    """One Map that computes what two do."""
    inputs = [n for name in node.inputs for n in (producer.inputs if name == producer.output else [name])]
    names = list(dict.fromkeys(inputs))
    inner = _renumbered(map_expression(producer), producer.inputs, names)
    expr = _renumbered(map_expression(node), node.inputs, names, {producer.output: inner})
    return replace(node, op=Map(expr), inputs=tuple(names), origin=origins([producer, node]))


def _renumbered(
    expr: Expr, inputs: tuple[str, ...], names: list[str], given: dict[str, Expr] | None = None, base: int = 0
) -> Expr:
    """An expression over `inputs` as one over `names`, of which the first is operand `base`; inputs in `given` become
    these expressions."""
    given = given or {}
    dtypes = {e.index: e.dtype for e in walk(expr) if isinstance(e, Arg)}
    operands = {
        k: given[inputs[k]] if inputs[k] in given else Arg(dtype, base + names.index(inputs[k]))
        for k, dtype in dtypes.items()
    }
    return ordered(substitute(expr, operands))


def _into_product(rewriter: Rewriter, node: Node, order: dict[str, int], kinds: frozenset[np.dtype] = FLOATS) -> None:
    """Makes a Map the epilogue of the last convolution or matrix product before it that only it reads."""
    if not isinstance(node.op, Map) or is_looked_up(rewriter, node):
        return
    before = [rewriter.nodes[name] for name in node.inputs if name in rewriter.nodes]
    for producer in sorted(before, key=lambda p: order[p.output], reverse=True):
        if map_into_product(rewriter, producer, node, kinds):
            return


def map_into_product(rewriter: Rewriter, producer: Node, node: Node, kinds: frozenset[np.dtype] = FLOATS) -> bool:
    """Makes a Map of operands and a result of these `kinds` the epilogue of a product, or more of it, if it can be."""
    merged = _with_epilogue(rewriter, producer, node, kinds) if _joins(rewriter, producer, node) else None
    if merged is not None:
        rewriter.put(merged)
        rewriter.remove(producer.output)
        simplify_integer_epilogue(rewriter, merged.output)
    return merged is not None


def _with_epilogue(rewriter: Rewriter, producer: Node, node: Node, kinds: frozenset[np.dtype]) -> Node | None:
    """The product with the Map as its epilogue; None if the producer is no product or the Map is too large for that."""
    if not isinstance(producer.op, Product):
        return None
    main = producer.op.main
    extras = list(producer.inputs[main:])
    extras += [name for name in node.inputs if name != producer.output and name not in extras]
    sums = product_type(producer.op.name, [rewriter.types[name] for name in producer.inputs[:main]])
    product = producer.op.epilogue or Arg(sums, 0)
    parts = producer.op.gate_parts if isinstance(producer.op, Conv) else 1
    expr = _renumbered(map_expression(node), node.inputs, extras, {producer.output: product}, parts)
    if len(extras) > OPERANDS or _operations(expr) > OPERATIONS:
        return None
    given = [expr.dtype, *(e.dtype for e in walk(expr) if isinstance(e, Arg))]
    if sums != SUMS and (rewriter.types[producer.output].dtype != np.float32 or not kinds.issuperset(given)):
        return None
    op = replace(producer.op, epilogue=expr)
    inputs = (*producer.inputs[:main], *extras)
    return Node(producer.name, op, inputs, node.output, origins([producer, node]))


def _into_reduce(rewriter: Rewriter, node: Node) -> None:
    """Computes a Map inside the reduction that reads it."""
    if not isinstance(node.op, Reduce) or node.op.pre is not None:
        return
    producer = rewriter.nodes.get(node.inputs[0])
    if producer is None or not isinstance(producer.op, Map) or rewriter.only_reader(producer.output) is not node:
        return
    shape = rewriter.types[producer.output].shape
    full = next((name for name in producer.inputs if rewriter.types[name].shape == shape), None)
    if full is None:
        return
    names = [full, *(name for name in producer.inputs if name != full)]
    pre = _renumbered(producer.op.expr, producer.inputs, names)
    op = replace(node.op, pre=pre)
    rewriter.put(replace(node, op=op, inputs=tuple(names), origin=origins([producer, node])))
    rewriter.remove(producer.output)


def _after_reduce(rewriter: Rewriter, node: Node) -> None:
    """Applies a Map of one operand to what a reduction gives."""
    if not isinstance(node.op, Map) or len(node.inputs) != 1:
        return
    producer = rewriter.nodes.get(node.inputs[0])
    if producer is None or not isinstance(producer.op, Reduce) or not _joins(rewriter, producer, node):
        return
    combined = producer.op.post or Arg(rewriter.types[producer.output].dtype, 0)
    op = replace(producer.op, post=substitute(node.op.expr, {0: combined}))
    rewriter.put(Node(producer.name, op, producer.inputs, node.output, origins([producer, node])))
    rewriter.remove(producer.output)


def _reading(node: Node, names: dict[str, str]) -> Node:
    return replace(node, inputs=tuple(names.get(name, name) for name in node.inputs))


def map_expression(node: Node) -> Expr:
    """The expression of a Map."""
    assert isinstance(node.op, Map)
    return node.op.expr


def _operations(expr: Expr) -> int:
    return sum(isinstance(e, Apply) for e in walk(expr))
