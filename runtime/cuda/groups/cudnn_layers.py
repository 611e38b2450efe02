"""Which nodes of a plan cuDNN computes.

Only whole layers whose tensors lie in the arena: the addresses of a graph's own inputs and outputs change from run to
run, and a captured call keeps those it was captured with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

import numpy as np

from brickrt.ops.cuda.cudnn.coverage import Coverage, coverages, covered, in_place, inputs_of
from brickrt.ops.cuda.cudnn.form import Form, Unfit
from brickrt.ops.cuda.cudnn.make_form import as_convolution, form_of, weights
from brickrt.ops.cuda.operand import VECTOR, Operand
from brickrt.ops.operators.product import Product
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.cuda.kernels.kernel_context import ARENA
from brickrt.runtime.cuda.schedule.argument_table import device_places, precision_of
from brickrt.runtime.lowering.operands import OperandPlaces
from brickrt.runtime.lowering.task_graph import TaskGraph

SLOWER = "kernels were measured faster"


@dataclass(frozen=True)
class StoredConstant:
    """A constant whose elements are uploaded in the order in which an operand has them in memory."""

    name: str
    operand: Operand

    def stored(self, array: np.ndarray) -> np.ndarray:
        """The constant's value in that order."""
        outer_first = sorted(range(array.ndim), key=lambda axis: -self.operand.strides[axis])
        return np.ascontiguousarray(array.transpose(outer_first))


@dataclass(frozen=True, eq=False)
class Layer:
    """A share of a node that cuDNN may compute whole: the index of its steps, and per tensor of the form, output first,
    the byte offset in the arena, or the constant that is uploaded for it."""

    steps: int
    form: Form
    places: tuple[int | StoredConstant, ...]
    share: Coverage = "all"


@dataclass
class Layers:
    """`found` by index of steps, the largest share first; `reasons` why kernels compute more, by name of the node."""

    found: dict[int, list[Layer]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def is_layer(subgraph: Subgraph) -> bool:
    """Whether padded bricks are of one node, which may as well be computed whole."""
    return subgraph.strategy == "padded" and len(subgraph.members) == 1


def find_layers(tasks: TaskGraph) -> Layers:
    """All products of layerwise subgraphs, and padded ones of a single node."""
    places, layers = device_places(tasks), Layers()
    graph = tasks.plan.graph
    alone = (s for s in tasks.plan.subgraphs if s.strategy == "layerwise" or is_layer(s))
    whole = {k: k in subgraph.kernels for subgraph in alone for k in subgraph.nodes}
    for i, steps in enumerate(tasks.steps):
        node = graph.nodes[steps.node]
        if steps.node not in whole or not isinstance(node.op, Product):
            continue
        if whole[steps.node]:
            layers.reasons[node.name] = SLOWER
            continue
        packed = [name in graph.constants for name in node.inputs]
        ways = as_convolution(node.op, graph.out(node), packed, precision_of(tasks))
        for share, way in product(_shares(tasks, steps.node), ways):
            try:
                layer = _layer(places, i, share, way)
                layers.found.setdefault(i, []).append(layer)
            except Unfit as e:
                layers.reasons.setdefault(node.name, str(e))
    return layers


def _shares(tasks: TaskGraph, k: int) -> tuple[Coverage, ...]:
    """What is left of a whole layer is computed where its product lies, in the output."""
    graph = tasks.plan.graph
    node = graph.nodes[k]
    assert isinstance(node.op, Product)
    return coverages(node.op) if in_place(node.op, graph.types[node.inputs[0]].dtype) else ("all",)


def _layer(places: OperandPlaces[Operand], i: int, share: Coverage, convolution: bool) -> Layer:
    """A share of steps `i`, a matrix product as a convolution if asked. Raises Unfit."""
    steps, tasks = places.tasks.steps[i], places.tasks
    graph = tasks.plan.graph
    node = graph.nodes[steps.node]
    names = (node.output, *node.inputs[: inputs_of(node.op, share, len(node.inputs))])
    packed = [name in graph.constants for name in names[1:]]
    out, *ins = (places.operand(name) for name in names)
    assert isinstance(node.op, Product)
    form = form_of(covered(node.op, share), ins, out, packed, precision_of(tasks), convolution)
    found: list[int | StoredConstant] = []
    for k, (name, operand) in enumerate(zip(names, (out, *ins), strict=True)):
        if k and packed[k - 1]:
            found.append(StoredConstant(name, weights(node.op, operand, form) if k == 2 else operand))
        else:
            found.append(offset_of(places, name, operand, i))
    return Layer(i, form, tuple(found), share)


def offset_of(places: OperandPlaces[Operand], name: str, operand: Operand, i: int) -> int:
    """Where in the arena a tensor lies that steps `i` read or write. Raises Unfit."""
    base, offsets = places.origin(name, operand, places.tasks.steps[i])
    if base != ARENA:
        raise Unfit(f"'{name}' is an input or output of the graph")
    if offsets[0] % VECTOR:
        raise Unfit(f"'{name}' does not begin at a multiple of {VECTOR} bytes")
    return int(offsets[0])
