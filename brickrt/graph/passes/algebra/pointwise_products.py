"""Pointwise convolutions come before what they commute with, where that is less work: Resize and Concat.

a ─ conv ──────────── concat ─ conv     →     a ─ conv ──────────── add
b ─ conv ─ resize ──────┘                     b ─ conv ─ resize ─────┘

A resized pixel is a weighted mean of pixels: products of means are means of products, and the bias is a mean of itself.
Of weights that are not negative and sum to one, rounding errors have the same bound in either order, and Inf and NaN
reach the same elements, but for sums that leave float32's range on the way. Two convolutions in a row stay two: of one
infinity the first makes several, of opposite signs, whose sum is NaN, and their product would not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from brickrt.graph.graph_writer import GraphWriter
from brickrt.graph.ir import Graph, Node
from brickrt.graph.passes.fold import fold
from brickrt.ops.base import Op
from brickrt.ops.expr import Expr, apply, arg
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import Concat, Take
from brickrt.ops.operators.sampling.interp import AxisTaps, Interp

F32 = np.dtype(np.float32)
ROUNDING = 2.0**-24
"""How far a sum of weights may be from one."""
CONSTANT_BOUND = 2.0**40
WEIGHED, COPIED, ADDED = 16.0, 6.0, 4.0
"""What an element takes to be interpolated, copied, or added in an epilogue, as multiply-adds of a convolution."""


def move_products(graph: Graph) -> Graph:
    """An equal graph whose pointwise convolutions run where they take least."""
    writer = _ProductWriter(graph)
    written = writer.written()
    return fold(written) if writer.changed else graph


@dataclass(frozen=True)
class _Product:
    """A product of channels still to be placed: weights [M, C], and the bias [M] or None, in float64, with the mark of
    the convolution."""

    weights: np.ndarray
    bias: np.ndarray | None
    nodes: tuple[Node, ...]
    halves: bool


class _ProductWriter(GraphWriter):
    """The new graph, node by node; whether it is `changed`."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.changed = False

    def place(self, node: Node) -> None:
        """Adds a node, or what a pointwise convolution becomes."""
        moves = self.multiplies(node) and self.moves(node.inputs[0], self.types[node.output].shape[1])
        if not moves or not all(_modest(self.constants[name]) for name in _operands(node)[0]):
            self.add(node)
            return
        self.changed = True
        product = self.product(node)
        self.types.pop(node.output)
        assert isinstance(node.op, Conv)
        if node.op.epilogue is None:
            self.apply(product, node.inputs[0], node.output)
            return
        sums = self.apply(product, node.inputs[0])
        self.emit(Map(node.op.epilogue), (sums, *_operands(node)[1]), *product.nodes, output=node.output)

    def multiplies(self, node: Node) -> bool:
        """Whether a node is a pointwise convolution with constant weights."""
        op, known, out = node.op, self.constants, self.types[node.output]
        if not isinstance(op, Conv) or not _pointwise(op) or any(name not in known for name in _operands(node)[0]):
            return False
        return self.types[node.inputs[0]].dtype == F32 and 0 not in out.shape and node.inputs[0] not in known

    def product(self, node: Node) -> _Product:
        """What a pointwise convolution multiplies with."""
        weights, *bias = (self.constants[name].astype(np.float64) for name in _operands(node)[0])
        assert isinstance(node.op, Conv)
        return _Product(weights.reshape(weights.shape[:2]), bias[0] if bias else None, (node,), node.op.halves)

    def moves(self, x: str, m: int) -> bool:
        """Whether a product of this tensor, with `m` outputs, is less work before what makes the tensor."""
        node = self.nodes.get(x)
        if node is None or not self.alone(x):
            return False
        return self.commutes(node, m) or bool(self.parts(node, m))

    def alone(self, name: str) -> bool:
        """Whether one node reads a tensor, and nobody outside."""
        return name not in self.graph.outputs and len(self.graph.consumers.get(name, (0,))) == 1

    def commutes(self, node: Node, m: int) -> bool:
        """Whether a product before a Resize is less work than after it."""
        cost = resize_cost(node.op)
        if cost is None:
            return False
        c = self.types[node.output].shape[1]
        low, high = (math.prod(self.types[name].shape[2:]) for name in (node.inputs[0], node.output))
        return low * m * c + high * m * cost < high * m * c + high * c * cost

    def parts(self, node: Node, m: int) -> list[int]:
        """The inputs of a Concat that are resized, and of which products would be less work before that.

        None where most channels stay: the sum that comes to them, and the cut of what is around, cost what is saved.
        """
        if not isinstance(node.op, Concat) or node.op.axis != 1:
            return []
        found = []
        for k, (name, columns) in enumerate(zip(node.inputs, self.columns(node), strict=True)):
            resize = self.nodes.get(name)
            cost = None if resize is None or not self.alone(name) else resize_cost(resize.op)
            if resize is None or cost is None:
                continue
            c = columns.stop - columns.start
            low, high = (math.prod(self.types[n].shape[2:]) for n in (resize.inputs[0], name))
            if low * m * c + high * m * (cost + ADDED) < high * m * c + high * c * (cost + COPIED):
                found.append(k)
        moved = sum(self.types[node.inputs[k]].shape[1] for k in found)
        return found if 2 * moved >= self.types[node.output].shape[1] else []

    def columns(self, node: Node) -> list[slice]:
        """The channels of each input of a Concat."""
        ends = np.cumsum([0, *(self.types[name].shape[1] for name in node.inputs)]).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

    def apply(self, product: _Product, x: str, output: str = "") -> str:
        """Adds the product of a tensor, wherever it is least work; returns its name."""
        node = self.nodes.get(x)
        if node is None or not self.moves(x, len(product.weights)):
            return self.convolve(product, x, output)
        product = replace(product, nodes=(node, *product.nodes))
        if isinstance(node.op, Concat):
            return self.sum(product, node, output)
        inputs = (self.apply(product, node.inputs[0]),)
        return self.emit(node.op, inputs, *product.nodes, output=output, hint=f"{x}:product")

    def sum(self, product: _Product, node: Node, output: str) -> str:
        """The product of joined channels as a sum: those that stay joined first, as its bias belongs to them."""
        columns, moved = self.columns(node), self.parts(node, len(product.weights))
        kept = [k for k in range(len(columns)) if k not in moved]
        groups = ([kept] if kept else []) + [[k] for k in moved]
        terms: list[str] = []
        for group in groups:
            weights = np.concatenate([product.weights[:, columns[k]] for k in group], axis=1)
            part = replace(product, weights=weights, bias=None if terms else product.bias)
            names = tuple(node.inputs[k] for k in group)
            x = names[0] if len(names) == 1 else self.emit(Concat(1), names, *product.nodes)
            terms.append(self.apply(part, x))
        return self.emit(Map(_total(len(terms))), tuple(terms), *product.nodes, output=output)

    def convolve(self, product: _Product, x: str, output: str) -> str:
        """Adds a pointwise convolution."""
        rank = self.types[x].rank - 2
        ones, none = (1,) * rank, (0,) * rank
        weights = product.weights.reshape(*product.weights.shape, *ones)
        arrays = [weights] if product.bias is None else [weights, product.bias]
        names = [self.bind(array.astype(F32), f"{product.nodes[-1].name}/w") for array in arrays]
        op = Conv(ones, ones, ones, none, none, bias=len(names) == 2, halves=product.halves)
        return self.emit(op, (x, *names), *product.nodes, output=output)


def _pointwise(op: Conv) -> bool:
    sizes = {*op.kernel, *op.strides, op.groups, op.gate_parts}
    return sizes == {1} and not any((*op.pads, *op.pads_end)) and not op.channel_scaled


def _operands(node: Node) -> tuple[Sequence[str], Sequence[str]]:
    """The weights and the bias of a convolution, and what its epilogue reads beside its sums."""
    assert isinstance(node.op, Conv)
    return node.inputs[1 : node.op.main], node.inputs[node.op.main :]


def _modest(array: np.ndarray) -> bool:
    """Whether sums of products with such constants stay far from the end of float32's range."""
    return bool(np.abs(array).max(initial=0) < CONSTANT_BOUND)


def _total(count: int) -> Expr:
    total: Expr = arg(0, F32)
    for k in range(1, count):
        total = apply("add", total, arg(k, F32))
    return total


def resize_cost(op: Op) -> float | None:
    """What an element takes, as multiply-adds, where each pixel is a mean of pixels of its channel; else None."""
    if isinstance(op, Interp):
        return WEIGHED if op.taps[:2] == (None, None) and all(t is None or _mean(t) for t in op.taps) else None
    if isinstance(op, Take):
        tables = [t for t in op.tables[2:] if t is not None]
        return COPIED if op.tables[:2] == (None, None) and all(min(t, default=0) >= 0 for t in tables) else None
    return None


def _mean(taps: AxisTaps) -> bool:
    weights = taps.weight_array
    return bool((weights >= 0).all() and (np.abs(weights.sum(axis=1) - 1) <= ROUNDING).all())
