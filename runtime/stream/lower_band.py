"""Lowers the plan of one band to a task graph, as a whole plan is lowered, on the rows that the band computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from brickrt.ops.types import Shape
from brickrt.plan.geometry.arena_packing import aligned
from brickrt.plan.geometry.bricks import BrickGrid
from brickrt.plan.stream.band_plan import BandPlan
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.lowering.arena import allocate
from brickrt.runtime.lowering.inplace_slices import InplaceSlice
from brickrt.runtime.lowering.lower import Lowering
from brickrt.runtime.lowering.task_graph import Allocation, StorageKind, TaskGraph


@dataclass(kw_only=True)
class BandLowering(Lowering):
    """A band while it is lowered; `slices` and `views` are those of the whole plan."""

    band: BandPlan
    slices: Mapping[str, InplaceSlice]
    views: Mapping[str, str]
    restored: dict[str, np.ndarray] = field(default_factory=dict)  # tensor → tasks that restore its rows

    def allocate_io(self) -> None:
        """Persistent tensors are the inputs of a band's graph, whether it reads them or writes them."""
        self.inplace_slices = dict(self.slices)
        self.aliases = dict(self.views) | {name: part.source for name, part in self.slices.items()}
        for name, place in self.band.places.items():
            if place.slot >= 0:
                self.allocations[name] = replace(self.room(name, "input"), slot=place.slot)

    def arena_place(self, name: str) -> Allocation:
        """Room in the arena for the rows that the band holds."""
        return self.room(name, "arena") if name in self.band.places else super().arena_place(name)

    def room(self, name: str, kind: StorageKind) -> Allocation:
        """Storage as the band's plan has it."""
        place, plan = self.band.places[name], self.plan
        one = allocate(plan.graph.types[name], place.extents, plan.layouts[name], plan.device.lanes, kind)
        return replace(one, origin=place.origin)

    def plan_arena(self) -> int:
        """Tensors of which nodes read no row in this band (padding, the other part of a Concat) need an address too."""
        total, graph = super().plan_arena(), self.plan.graph
        for k in (k for subgraph in self.plan.subgraphs for k in subgraph.nodes):
            for name in graph.nodes[k].inputs:
                while name in self.aliases:
                    name = self.aliases[name]
                if name not in self.allocations and name not in graph.constants:
                    kind, layout = graph.types[name], self.plan.layouts[name]
                    self.allocations[name] = allocate(kind, (1,) * kind.rank, layout, self.plan.device.lanes, "arena")
                    total = max(total, aligned(self.allocations[name].nbytes))
        return total

    def grid(self, k: int, brick: Shape) -> BrickGrid:
        """The bricks of the rows that the band computes."""
        return BrickGrid.of_box(self.band.boxes[k], brick)

    def brick_by_brick(self, s: int, subgraph: Subgraph) -> None:
        """Rows are saved where others were restored from, once those are read."""
        first, k = self.tasks, subgraph.nodes[-1]
        super().brick_by_brick(s, subgraph)
        tasks = np.arange(first, self.tasks)
        if k in self.band.restores:
            self.restored[self.band.restores[k]] = tasks
        restored = self.restored.get(self.band.saves.get(k, ""))
        if restored is not None:
            self.waits.append((np.repeat(tasks, len(restored)), np.tile(restored, len(tasks))))


def lower_band(band: BandPlan, slices: Mapping[str, InplaceSlice], views: Mapping[str, str]) -> TaskGraph:
    """The verified task graph of one band; `slices` and `views` are the whole plan's tensors that lie in others."""
    tasks = BandLowering(band.plan, band=band, slices=slices, views=views).lower()
    return replace(tasks, volumes={k: int(box.volumes[0]) for k, box in band.boxes.items()}).verify()
