"""Which kernels the steps of a task graph call. Those of equal layers are chosen once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from brickrt.ops.cpu.all_kernels import ALGORITHMS
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, PrefetchedOperand, choose_kernel
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.types import Boxes
from brickrt.plan.structure import Structures
from brickrt.runtime.lowering.operands import OperandPlaces
from brickrt.runtime.lowering.task_graph import Steps, TaskGraph

Chosen = tuple[Sequence[Kernel], np.ndarray]
"""Kernels, and the index of that of each step."""


class StepKernels:
    """Remembers what it chose: equal steps are given the same lists of kernels."""

    def __init__(self, tasks: TaskGraph, isa: Isa, places: OperandPlaces[Operand]) -> None:
        self.plan, self.isa, self.places = tasks.plan, isa, places
        self._structures = Structures(tasks.plan.graph, tasks.plan.layouts)
        self._known: dict[Hashable, tuple[Boxes, Chosen]] = {}

    def of(self, steps: Steps, out: Operand, ins: tuple[Operand, ...]) -> Chosen:
        """The kernels of a node's steps, whose operands lie so."""
        streams = tuple((self.places.operand(name), stream.write) for name, stream in steps.prefetches.items())
        kind, algorithm = self._structures.kinds[steps.node], self.plan.algorithms.get(steps.node)
        key = kind, algorithm, out, ins, streams, id(steps.boxes)
        if key not in self._known:  # boxes are held, for their id to be their own
            self._known[key] = steps.boxes, self._choose(steps, out, ins)
        return self._known[key][1]

    def _choose(self, steps: Steps, out: Operand, ins: tuple[Operand, ...]) -> Chosen:
        node, algorithm = self.plan.graph.nodes[steps.node], self.plan.algorithms.get(steps.node)
        packed = tuple(self.places.is_constant(name) for name in node.inputs)
        family = ALGORITHMS[algorithm] if algorithm else choose_kernel(node.op, ins, out, self.isa)
        which, classes = family.classify(node.op, ins, out, steps.boxes, self.isa)
        streams = steps.prefetches.items() if family.prefetches else ()
        ahead = tuple(PrefetchedOperand(self.places.operand(name), stream.write) for name, stream in streams)
        return [family(node.op, ins, out, self.isa, packed, c, ahead) for c in classes], which
