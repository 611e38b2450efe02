"""Fusing undone: each elementwise function is an operator of its own, and so is each reduction and product.

conv, epilogue max(x + y, 0)   →   conv ─ add ─ max
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from brickrt.graph.ir import Graph, Node
from brickrt.graph.passes.unfuse import unfuse
from brickrt.graph.rewriter import unused_name
from brickrt.ops.base import Op
from brickrt.ops.expr import Apply, Arg, Expr, used_operands
from brickrt.ops.operators.block_matmul import BlockMatMul
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.ops.types import TensorType


def single_steps(graph: Graph) -> Graph:
    """An equal graph whose Maps apply one function each, and whose products and reductions apply none. A function that
    broadcasts its operands farther than it uses them stays as it is."""
    graph = unfuse(graph)
    steps = _Steps(dict(graph.types))
    for node in graph.nodes:
        steps.take_apart(node)
    used = {*graph.inputs, *graph.constants, *(node.output for node in steps.nodes)}
    types = {name: kind for name, kind in steps.types.items() if name in used}
    return replace(graph, nodes=tuple(steps.nodes), types=types)


@dataclass
class _Steps:
    """The nodes that there are so far, and the types of all tensors."""

    types: dict[str, TensorType]
    nodes: list[Node] = field(default_factory=list)
    known: dict[tuple[Expr, tuple[str, ...]], str] = field(default_factory=dict)  # of the node at hand

    def take_apart(self, node: Node) -> None:
        """Adds what `node` does, step by step."""
        op = node.op
        self.known.clear()
        if isinstance(op, Map):
            self.function(node, op.expr, node.inputs)
        elif isinstance(op, Conv | ConvTranspose | MatMul | BlockMatMul) and op.epilogue is not None:
            product = self.step(node, replace(op, epilogue=None), node.inputs[: op.main])
            self.function(node, op.epilogue, (product, *node.inputs[op.main :]))
        elif isinstance(op, Reduce) and (op.pre is not None or op.post is not None):
            self.reduction(node, op)
        elif isinstance(op, Rowwise):
            self.rows(node, op)
        else:
            self.nodes.append(node)

    def step(self, node: Node, op: Op, inputs: Sequence[str]) -> str:
        """Adds a part of `node` that gives a tensor of its own."""
        name = unused_name(f"{node.output}:step", self.types)
        self.types[name] = op.infer([self.types[each] for each in inputs])
        self.nodes.append(Node(f"{node.name}:{len(self.nodes)}", op, tuple(inputs), name, node.origin))
        return name

    def function(self, node: Node, expr: Expr, operands: Sequence[str]) -> None:
        """Adds an elementwise function of these operands as what gives the output of `node`."""
        before, last = len(self.nodes), Map(expr)
        inputs = tuple(operands)
        if isinstance(expr, Apply):
            last, inputs = self.single(node, expr, operands)
        if last.infer([self.types[each] for each in inputs]) != self.types[node.output]:
            del self.nodes[before:]
            last, inputs = Map(expr), tuple(operands)
        self.nodes.append(Node(node.name, last, inputs, node.output, node.origin))

    def single(self, node: Node, expr: Apply, operands: Sequence[str]) -> tuple[Map, tuple[str, ...]]:
        """The outermost function alone, and the tensors that it reads."""
        given = [self.value(node, part, operands) if used_operands(part) else None for part in expr.args]
        names = list(dict.fromkeys(name for name in given if name is not None))
        args = (
            part if name is None else Arg(part.dtype, names.index(name))
            for part, name in zip(expr.args, given, strict=True)
        )
        return Map(replace(expr, args=tuple(args))), tuple(names)

    def value(self, node: Node, expr: Expr, operands: Sequence[str]) -> str:
        """The tensor that holds an expression of these operands."""
        if isinstance(expr, Arg):
            return operands[expr.index]
        assert isinstance(expr, Apply)
        key = expr, tuple(operands)
        if key not in self.known:
            self.known[key] = self.step(node, *self.single(node, expr, operands))
        return self.known[key]

    def reduction(self, node: Node, op: Reduce) -> None:
        """Adds what is reduced, the reduction, and what becomes of its result."""
        before, terms = len(self.nodes), node.inputs[0]
        if op.pre is not None:
            terms = self.value(node, op.pre, node.inputs)
        if self.types[terms].shape != self.types[node.inputs[0]].shape:
            del self.nodes[before:]
            self.nodes.append(node)
        elif op.post is None:
            self.nodes.append(replace(node, op=replace(op, pre=None), inputs=(terms,)))
        else:
            self.function(node, op.post, (self.step(node, replace(op, pre=None, post=None), (terms,)),))

    def rows(self, node: Node, op: Rowwise) -> None:
        """Adds each reduction of a row with what is before and after it, and the function of all results."""
        before, shape, values = len(self.nodes), self.types[node.inputs[0]].shape, list(node.inputs)
        kept = ""
        for number, step in enumerate(op.steps, 1):
            if op.kept is not None and number == len(op.steps):
                kept = self.value(node, op.kept, values)
            terms = self.value(node, step.pre, [*values, "", kept])
            if self.types[terms].shape != shape:
                del self.nodes[before:]
                self.nodes.append(node)
                return
            result = self.step(node, Reduce(step.combine, op.axes, keepdims=True), (terms,))
            values.append(result if step.post is None else self.value(node, step.post, [result]))
        self.function(node, op.expr, [*values, kept] if kept else values)
