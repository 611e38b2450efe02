"""Rewrites a graph to half precision: float32 tensors become float16 or bfloat16; inputs and outputs keep their type.

Products (convolutions, matrix products) read and write half precision, and so do elementwise operators on what they
write. These tensors stay float32, since operators with expressions read operands of any type:

- graph inputs that an expression reads, and graph outputs that one writes: they need no cast of their own;
- results of reductions (sums, means, deviations), unless a product reads them;
- what is not computed from tensors in half precision, such as masks from integers;
- what products of integers, and products with weights of few bits, read and write;
- in float16, what may be beyond its range: constants with finite elements beyond 65504 (masks of -1e9 would become
  infinite, and a row that is masked as a whole NaN), what expressions compute from them, and powers.

A product that reads one of these gets it cast, constants to the nearest finite value.

With `factors_only`, for processors whose sums and elementwise steps are in float32 anyway, constants other than weights
stay float32: biases and what expressions read. So do the factors of a convolution of an image with few channels that
nobody has in half precision, which have no neighbours to be multiplied with.
"""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.graph.passes.retype import expressions, retyped
from brickrt.graph.rewriter import prune, unused_name
from brickrt.ops.base import Op
from brickrt.ops.definitions.elementwise_functions import named
from brickrt.ops.expr import COMPARE, Apply, Const, Expr, arg, cast, walk
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.product import Product
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.ops.types import TensorType, is_floating

F32 = np.dtype(np.float32)
HALF_TYPES: dict[str, np.dtype] = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
BOUNDS = COMPARE.keys() | {"min", "max"}
"""Functions that may have a large constant as operand though their value is not large."""
FEW_CHANNELS = 4
POWERS = named(lambda function: function.powers)
Expressive = Map | Reduce | Rowwise


def to_half_precision(graph: Graph, precision: str, factors_only: bool = False) -> Graph:
    """The graph computed in half precision; as it is for "fp32" and "tf32", which change no tensor."""
    return _ToHalfPrecision(graph, precision, factors_only).graph() if precision in HALF_TYPES else graph


class _ToHalfPrecision:
    """One pass in topological order, by the names of the graph given; `now` has the tensors that stand for them."""

    def __init__(self, graph: Graph, precision: str, factors_only: bool) -> None:
        self.source, self.suffix, self.half = graph, precision, HALF_TYPES[precision]
        self.factors_only = factors_only
        self.limit = float(ml_dtypes.finfo(self.half).max)
        self.types, self.constants = dict(graph.types), dict(graph.constants)
        self.nodes: list[Node] = []
        self.now = {name: name for name in graph.types}
        self.casts: dict[str, str] = {}
        self.wanted = _read_by_products(graph)
        self.data = {name for name in graph.inputs if graph.types[name].dtype == F32}
        self.large = {name for name, array in graph.constants.items() if array.dtype == F32 and self.exceeds(array)}

    def graph(self) -> Graph:
        for node in self.source.nodes:
            self.visit(node)
        source = self.source
        return prune(Graph(tuple(self.nodes), self.types, self.constants, source.inputs, source.outputs)).verify()

    def exceeds(self, values: np.ndarray | float) -> bool:
        """Whether a finite value would be infinite in half precision."""
        array = np.asarray(values)
        if array.size and -self.limit <= array.min() and array.max() <= self.limit:  # neither holds of NaN
            return False
        array = np.abs(array.astype(np.float64))
        return bool((np.isfinite(array) & (array > self.limit)).any())

    def visit(self, node: Node) -> None:
        if isinstance(node.op, Product) and not is_floating(self.source.ins(node)[1].dtype):
            # of integers, or with weights of few bits
            self.emit(node, node.op, tuple(map(self.as_single, node.inputs)))
            return
        target, op = self.target(node), node.op
        if isinstance(op, Product):
            cast_names = set(self.cast_factors(node, op))
        else:
            cast_names = set() if isinstance(op, Expressive) or target != self.half else set(node.inputs)
        if target == self.half:
            if not self.factors_only:
                cast_names |= {name for name in node.inputs if name in self.constants and name not in self.large}
            self.data.add(node.output)
        names = tuple(self.as_half(name) if name in cast_names else self.now[name] for name in node.inputs)
        before, now = [t.dtype for t in self.source.ins(node)], [self.types[name].dtype for name in names]
        self.emit(node, retyped(op, before, now, target), names)

    def cast_factors(self, node: Node, op: Product) -> tuple[str, ...]:
        """The inputs of a product that it reads in half precision."""
        if not self.factors_only:
            return node.inputs[: op.main]
        x = node.inputs[0]
        few = isinstance(op, Conv) and self.source.types[x].shape[1] <= FEW_CHANNELS
        return () if few and self.types[self.now[x]].dtype == F32 else node.inputs[:2]

    def target(self, node: Node) -> np.dtype:
        """The type of a node's output: a half type for some that are float32."""
        kind, op = self.source.out(node).dtype, node.op
        if kind != F32:
            return kind
        computed = not self.data.isdisjoint(node.inputs)
        if self.may_be_large(node):
            self.large.add(node.output)
        if node.output in self.source.outputs and not isinstance(op, Product) and not self.moves_half(node):
            if computed:
                self.data.add(node.output)
            return F32
        if node.output in self.wanted:
            return self.half
        if isinstance(op, Product):
            return F32 if node.output in self.large else self.half
        if isinstance(op, Reduce) or (isinstance(op, Map) and node.output in self.large):
            return F32
        return self.half if computed or self.moves_half(node) else F32

    def moves_half(self, node: Node) -> bool:
        """Whether an operator whose output has the type of its inputs reads half precision."""
        return not isinstance(node.op, Expressive | Product) and any(
            self.types[self.now[name]].dtype == self.half for name in node.inputs
        )

    def may_be_large(self, node: Node) -> bool:
        """Whether elements may be beyond the range of the half type; normalized rows never are."""
        if isinstance(node.op, Rowwise):
            return False
        exprs = expressions(node.op)
        powers = self.limit < 1e6 and any(_is_power(e) for e in exprs)
        return powers or not self.large.isdisjoint(node.inputs) or any(map(self.has_large_constant, exprs))

    def has_large_constant(self, expr: Expr) -> bool:
        parents = [e for e in walk(expr) if isinstance(e, Apply) and e.fn not in BOUNDS]
        constants = [e for e in (expr, *(a for p in parents for a in p.args)) if isinstance(e, Const)]
        return any(e.dtype == F32 and self.exceeds(e.value) for e in constants)

    def as_half(self, name: str) -> str:
        """The tensor in half precision if it is float32; a cast is made once."""
        now = self.now[name]
        if self.types[now].dtype != F32:
            return now
        if now not in self.casts:
            new = self.casts[now] = self.fresh(now)
            self.types[new] = TensorType(self.types[now].shape, self.half)
            if now in self.constants:
                self.constants[new] = self.rounded(self.constants[now])
            else:
                self.nodes.append(Node(new, Map(cast(arg(0, F32), self.half)), (now,), new))
        return self.casts[now]

    def as_single(self, name: str) -> str:
        """The tensor in float32 if it was float32."""
        now = self.now[name]
        if self.types[now].dtype != self.half or self.source.types[name].dtype != F32:
            return now
        back = f"{now}/single"
        if back not in self.types:
            self.types[back] = self.source.types[name]
            self.nodes.append(Node(back, Map(cast(arg(0, self.half), F32)), (now,), back))
        return back

    def rounded(self, array: np.ndarray) -> np.ndarray:
        """The nearest values in half precision; finite elements stay finite."""
        finite = np.where(np.isfinite(array), array.clip(-self.limit, self.limit), array)
        return finite.astype(self.half)

    def emit(self, node: Node, op: Op, names: tuple[str, ...]) -> None:
        """Adds a node; where its output is one of the graph, it is cast back to float32 under its name."""
        kind = op.infer([self.types[name] for name in names])
        if node.output not in self.source.outputs or kind == self.source.out(node):
            self.types[node.output] = kind
            self.nodes.append(replace(node, op=op, inputs=names))
            return
        output = self.now[node.output] = self.fresh(node.output)
        self.types[output] = kind
        self.nodes.append(replace(node, op=op, inputs=names, output=output))
        back = Map(cast(arg(0, kind.dtype), F32))
        self.nodes.append(Node(f"{node.name}.cast", back, (output,), node.output, node.origin))

    def fresh(self, name: str) -> str:
        return unused_name(f"{name}.{self.suffix}", self.types)


def _is_power(expr: Expr) -> bool:
    return isinstance(expr, Apply) and expr.fn in POWERS


def _read_by_products(graph: Graph) -> set[str]:
    """The tensors that products read, directly or moved only."""
    found: set[str] = set()
    for node in reversed(graph.nodes):
        if isinstance(node.op, Product):
            found.update(node.inputs[: node.op.main])
        elif not isinstance(node.op, Expressive) and node.output in found:
            found.update(node.inputs)
    return found
