"""Specialization: from a stage of the model and concrete types to a graph of brick operators.

Nodes are visited in topological order. Each becomes constants, brick operators, or a node for the host; or it waits,
because it depends on one that runs on the host or on a value the graph computes, and belongs to the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

import brickrt.graph.builders  # noqa: F401  (registers the builders)
from brickrt.graph.branches import SPECIAL, Splice, branch, expand, function_body
from brickrt.graph.builder import KERNEL_TYPES, Builder, OnnxNode, builder_for
from brickrt.graph.errors import BrickError, NeedValue, Unsupported
from brickrt.graph.fold import fold
from brickrt.graph.fuse import fuse
from brickrt.graph.host import captured, deterministic, reads
from brickrt.graph.inputs import check_inputs
from brickrt.graph.ir import Graph
from brickrt.graph.stages import Specialized, Stage, first_stage, only
from brickrt.graph.values import fold_nodes, fold_on_host, small_enough, static_value
from brickrt.ops.types import TensorType

__all__ = ["Specialized", "Stage", "check_inputs", "first_stage", "specialize"]

BOUND_ELEMENTS = 4096
"""Tensors with more elements are never bound as constants of a later stage: the node that asks runs on the host."""


def specialize(stage: Stage, types: Mapping[str, TensorType], values: Mapping[str, np.ndarray]) -> Specialized:
    """The stage with inputs of these types; `values` are those of inputs that become constants.

    An input without a type is no tensor (a sequence, an absent optional): its readers run on the host. Raises
    BrickError, naming the node, for shapes and types that do not fit.
    """
    walk = _Walk(stage, types, values)
    walk.run()
    if walk.need:
        return Specialized(Graph((), {}), need_values=frozenset(walk.need))
    return walk.result()


class _Walk:
    """One pass over a stage."""

    def __init__(self, stage: Stage, types: Mapping[str, TensorType], values: Mapping[str, np.ndarray]) -> None:
        self.stage, self.opsets = stage, stage.source.opsets
        read = [name for node in stage.nodes for name in reads(node)]
        written = [name for node in stage.nodes for name in node.outputs]
        names = {*read, *written, *stage.inputs, *stage.outputs, *(node.name for node in stage.nodes)}
        self.b = Builder(reserved=names, used=(*read, *stage.outputs))
        for name in stage.inputs:
            if name in types:
                self.b.types[name] = types[name]
        for name, array in (*stage.constants.items(), *only(values, stage.inputs).items()):
            self.b.bind(name, array)
        self.queue = deque(stage.nodes)
        self.host: list[OnnxNode] = []
        self.reasons: dict[str, str] = {}
        self.pending: set[str] = set()
        self.waiting: list[OnnxNode] = []
        self.late: set[str] = set()
        self.late_values: set[str] = set()
        self.need: set[str] = set()

    def run(self) -> None:
        while self.queue:
            node = self.queue.popleft()
            self.b.current = node
            self.visit(node)
        self.b.current = None

    def visit(self, node: OnnxNode) -> None:
        names = reads(node)
        if self.late.intersection(names):
            self.wait(node)
        elif self.pending.intersection(names):
            self.wait(node) if self.may_build(node) else self.to_host(node, "it has no brick operators")
        else:
            self.build(node, names)

    def may_build(self, node: OnnxNode) -> bool:
        return builder_for(node) is not None or (not node.domain and node.op_type in SPECIAL)
