"""Tensors of float16 models that are computed become float32, on processors that compute in float32.

x float16 ─ Map to float32 ─ Conv ─ Map to float16 ─ Concat ─ …      x float16 ─ Conv ─ Concat ─ …

The graph then fuses as that of the same model in float32. Inputs and outputs keep their type, and so does what is only
moved from them and from constants, such as rows of a table. Products that the model computes in float16 are marked
(`half_products.py`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.graph.passes.halves.half_products import half_products
from brickrt.graph.passes.halves.unrounded_steps import F16, F32, unrounded_op
from brickrt.graph.passes.retype import retyped
from brickrt.graph.rewriter import prune, unused_name
from brickrt.ops.base import Op
from brickrt.ops.expr import Arg, arg, cast
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.product import Product
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.ops.types import TensorType

SMALL_CONSTANT_ELEMENTS = 1 << 14  # it is widened wherever it is read


def wide_tensors(graph: Graph) -> Graph:
    """The graph with float32 in place of float16, rounded where it gives outputs; as it is where nothing is float16."""
    if not any(graph.out(node).dtype == F16 for node in graph.nodes):
        return graph
    return _Wide(graph).graph()


class _Wide:
    """One pass in topological order, by the names of the graph given; `now` has the tensors that stand for them."""

    def __init__(self, graph: Graph) -> None:
        self.source, self.types, self.constants = graph, dict(graph.types), dict(graph.constants)
        self.nodes: list[Node] = []
        self.now = {name: name for name in graph.types}
        self.casts: dict[tuple[str, np.dtype], str] = {}
        self.half_products = half_products(graph)

    def graph(self) -> Graph:
        for node in self.source.nodes:
            self.visit(node)
        source = self.source
        return prune(Graph(tuple(self.nodes), self.types, self.constants, source.inputs, source.outputs)).verify()

    def visit(self, node: Node) -> None:
        """Adds a node with operands and a result that are float32 where they can be."""
        names = [self.now[name] for name in node.inputs]
        kind, is_output = self.source.out(node).dtype, node.output in self.source.outputs
        halves = [k for k, t in enumerate(self.source.ins(node)) if t.dtype == F16]
        if isinstance(node.op, Map | Reduce | Rowwise | Product):
            main = node.op.main if isinstance(node.op, Product) else 0
            widened = [k for k in halves if k < main or self.is_small_constant(names[k])]
            names = [self.as_type(name, F32) if k in widened else name for k, name in enumerate(names)]
            target = F32 if kind == F16 and not is_output else kind
        else:
            wide = any(self.types[names[k]].dtype == F32 for k in halves) and not is_output
            target = F32 if wide and kind == F16 else kind
            names = [self.as_type(name, target) if k in halves else name for k, name in enumerate(names)]
        before, now = ([t.dtype for t in kinds] for kinds in (self.source.ins(node), [self.types[n] for n in names]))
        op = unrounded_op(retyped(node.op, before, now, target), len(names))
        if isinstance(op, Product) and node.output in self.half_products:
            op = replace(op, halves=True)
        self.emit(node, op, names, target)

    def is_small_constant(self, name: str) -> bool:
        """Whether a tensor is a constant such as a bias, which then folds as one of float32."""
        return name in self.constants and self.constants[name].size <= SMALL_CONSTANT_ELEMENTS

    def emit(self, node: Node, op: Op, names: list[str], target: np.dtype) -> None:
        """Adds a node; a Map that does nothing any more becomes its operand."""
        shape = self.source.out(node).shape
        idle = isinstance(op, Map) and isinstance(op.expr, Arg) and len(names) == 1
        if idle and self.types[names[0]] == TensorType(shape, target) and node.output not in self.source.outputs:
            self.now[node.output] = names[0]
            return
        self.types[node.output] = TensorType(shape, target)
        self.nodes.append(replace(node, op=op, inputs=tuple(names)))

    def as_type(self, name: str, dtype: np.dtype) -> str:
        """A tensor in this type: constants are converted here, others by a Map that all readers share."""
        if self.types[name].dtype == dtype:
            return name
        if (name, dtype) not in self.casts:
            made = self.casts[name, dtype] = unused_name(f"{name}/{dtype.name}", self.types)
            source = self.types[name]
            self.types[made] = TensorType(source.shape, dtype)
            if name in self.constants:
                self.constants[made] = self.constants[name].astype(dtype)
            else:
                self.nodes.append(Node(made, Map(cast(arg(0, source.dtype), dtype)), (name,), made, ()))
        return self.casts[name, dtype]
