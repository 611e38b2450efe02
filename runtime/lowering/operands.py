"""Where the operands of steps lie: how each tensor is laid out in memory, and where its virtual origin is.

A virtual origin is (base, byte offset) such that adding the strides of any index gives that element, even where only
some of a tensor is stored. Engines number their bases: scratch, arena, then the graph's inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from brickrt.ops.operand import Strided
from brickrt.ops.types import TensorType
from brickrt.plan.layout import Layout
from brickrt.runtime.lowering.inplace_slices import start_of
from brickrt.runtime.lowering.task_graph import ScratchMoves, Steps, TaskGraph

Origin = tuple[int, np.ndarray]  # base, byte offset per step
O_co = TypeVar("O_co", bound=Strided, covariant=True)


class LayOut(Protocol[O_co]):
    """Gives a device's operand for a tensor that is stored without gaps, in storage of these extents or its own."""

    def __call__(self, kind: TensorType, layout: Layout, extents: Sequence[int] | None = None, /) -> O_co: ...


class Bases(NamedTuple):
    """Numbers of an engine's bases; `io` is that of the first input, outputs follow the inputs."""

    scratch: int
    arena: int
    io: int


@dataclass(frozen=True)
class OperandPlaces(Generic[O_co]):
    """Finds the operands of a task graph on a device."""

    tasks: TaskGraph
    lay_out: LayOut[O_co]
    bases: Bases

    def is_constant(self, name: str) -> bool:
        """Whether a tensor is a constant, which is packed for each kernel that reads it."""
        return name in self.tasks.plan.graph.constants

    def operand(self, name: str) -> O_co:
        """How a tensor lies in memory; a slice that is read in place lies as its source does."""
        plan = self.tasks.plan
        kind = plan.graph.types[name]
        if self.is_constant(name):
            return self.lay_out(kind, plan.layouts[name])
        if name in self.tasks.inplace_slices:
            return replace(self.operand(self.tasks.inplace_slices[name].source), type=kind)
        if self.tasks.root(name) != name:
            return self.lay_out(kind, "plain")
        return self.lay_out(kind, plan.layouts[name], self.tasks.allocations[name].extents)

    def origin(self, name: str, operand: Strided, steps: Steps) -> Origin:
        """The virtual origin, for each step, of a tensor that is no constant."""
        root = self.tasks.root(name)
        place = self.tasks.allocations[root]
        first = place.offset
        if name in self.tasks.inplace_slices:
            first += int(operand.byte_offsets(start_of(self.tasks.inplace_slices, name, operand.rank))[0])
        offsets = np.full(len(steps.boxes), first, np.int64)
        if place.kind in ("scratch", "group"):
            offsets -= operand.byte_offsets(steps.origins[root])
        if place.origin:
            offsets -= operand.byte_offsets(np.array([place.origin], np.int64))
        return self.base(root), offsets

    def base(self, root: str) -> int:
        """The base that a stored tensor's storage belongs to."""
        place = self.tasks.allocations[root]
        if place.kind in ("input", "output"):
            return self.bases.io + place.slot + (len(self.tasks.plan.graph.inputs) if place.kind == "output" else 0)
        return self.bases.scratch if place.kind == "scratch" else self.bases.arena

    def moved(self, moves: ScratchMoves) -> tuple[O_co, list[Origin]]:
        """The operand of a tensor whose rows move inside its scratch, and its virtual origins after and before."""
        operand, start = self.operand(moves.tensor), self.tasks.allocations[moves.tensor].offset
        origins = [start - operand.byte_offsets(first) for first in (moves.after, moves.before)]
        return operand, [(self.bases.scratch, offsets) for offsets in origins]
