"""Splits long reductions of few results in two, so that all of a GPU takes part: a thread block computes a result.

x [N, C, H, W] ─ sum over H and W ─     →     x ─ sum over W ─ sum over H ─
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.graph.rewriter import unused_name
from brickrt.ops.expr import arg, cast, substitute
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.types import TensorType, is_floating

F32 = np.dtype(np.float32)
RESULTS = 4096
"""Reductions of more results have work for every block."""
LENGTH = 4096
"""Reductions of at most so many elements to a result are as fast in one step."""


def split_long_reductions(graph: Graph) -> Graph:
    """An equal graph, in which long reductions of few results over several axes are two each."""
    types = dict(graph.types)
    nodes: list[Node] = []
    for node in graph.nodes:
        cut = _cut(node.op, graph.ins(node)[0]) if isinstance(node.op, Reduce) else 0
        nodes += _two(node, cut, graph, types) if cut else [node]
    return replace(graph, nodes=tuple(nodes), types=types)


def _cut(op: Reduce, x: TensorType) -> int:
    """How many of the first axes are left to the second step; 0 for none."""
    shape = x.shape
    length = math.prod(shape[axis] for axis in op.axes)
    if length <= LENGTH or x.size // length >= RESULTS:
        return 0
    # The second step is to reduce about the square root of all, so that both are short; each needs an axis at least.
    cuts = range(1, len(op.axes))
    rest = [math.prod(shape[axis] for axis in op.axes[:cut]) for cut in cuts]
    best = min(cuts, key=lambda cut: abs(math.log(rest[cut - 1] ** 2 / length)), default=0)
    return best if best and 1 < rest[best - 1] < length else 0


def _two(node: Node, cut: int, graph: Graph, types: dict[str, TensorType]) -> list[Node]:
    """The reduction over all axes but the first `cut`, and the one over those."""
    op = node.op
    assert isinstance(op, Reduce)
    name = unused_name(f"{node.output}.parts", types)
    dtype = graph.ins(node)[0].dtype if op.pre is None else op.pre.dtype
    pre, post = op.pre, op.post
    if is_floating(dtype) and dtype.itemsize < 4:  # what is between the steps is not to be rounded once more
        pre = cast(pre or arg(0, dtype), F32)
        combined = cast(arg(0, F32), dtype)
        post = combined if post is None else substitute(post, {0: combined})
    first = Reduce(op.combine, op.axes[cut:], True, pre)
    last = Reduce(op.combine, op.axes[:cut] if op.keepdims else op.axes, op.keepdims, None, post)
    types[name] = first.infer(graph.ins(node))
    return [Node(f"{node.name}.parts", first, node.inputs, name, node.origin), replace(node, op=last, inputs=(name,))]
