"""A network as passes of bands, each with its storage: all that a run in bounded memory does, before it is lowered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from brickrt.plan.cost.strassen import LEVELS
from brickrt.plan.plan import Plan
from brickrt.plan.stream.band_plan import BandPlan, plan_band, plan_resident
from brickrt.plan.stream.band_schedule import BandSchedule, Network, schedule_pass
from brickrt.plan.stream.band_storage import BandStorage, store_pass, stored_bytes
from brickrt.plan.stream.equal_bands import equal_bands
from brickrt.plan.stream.swept_tensors import SweptTensors, as_units, find_swept_tensors
from brickrt.plan.subgraph import Subgraph

AXIS = 2  # rows of images, planes of volumes


@dataclass(frozen=True, eq=False)
class PassPlan:
    """One sweep. `before` are the units that run on whole tensors before it. Band b runs what band `like[b]` does."""

    schedule: BandSchedule
    storage: BandStorage
    before: tuple[Subgraph, ...]
    like: np.ndarray


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """A plan as passes. `rows` is the height of a band, in rows of the tallest input or output; `last` are the units
    that run on whole tensors after all passes. `always` has the bytes of the tensors that are held whole."""

    plan: Plan
    rows: int
    units: tuple[Subgraph, ...]
    swept: SweptTensors
    always: dict[str, int]
    passes: tuple[PassPlan, ...]
    last: tuple[Subgraph, ...]

    def band_plan(self, number: int, band: int) -> BandPlan:
        """What a band of a pass does."""
        one = self.passes[number]
        return plan_band(self.plan, self.units, one.schedule, one.storage, band)

    def resident_plan(self, number: int) -> BandPlan | None:
        """What runs before a pass, or after the last; None where that is nothing."""
        units = self.passes[number].before if number < len(self.passes) else self.last
        storage = self.passes[min(number, len(self.passes) - 1)].storage
        return plan_resident(self.plan, units, storage) if units else None


def plan_stream(plan: Plan, slices: dict[str, object], views: dict[str, str], rows: int) -> StreamPlan:
    """The passes of a plan in bands of `rows` rows. Raises BrickError naming a node that is not run band by band.

    `slices` and `views` name the tensors of the plan that lie in others.
    """
    from dataclasses import replace

    graph = plan.graph
    plan = replace(plan, algorithms={k: name for k, name in plan.algorithms.items() if name not in LEVELS})
    units = tuple(as_units(graph, plan.subgraphs, AXIS))
    inside = {name: one.source for name, one in slices.items()}
    swept = find_swept_tensors(graph, units, AXIS, inside)
    blocks = {name: plan.device.lanes for name, layout in plan.layouts.items() if layout == "blocked"}
    network = Network(graph, units, swept, slices, blocks)
    whole = [name for name in (*swept.collected, *swept.resident) if name not in slices and name not in views]
    always = {n: stored_bytes(graph.types[n], graph.types[n].shape, plan.layouts[n], plan.device.lanes) for n in whole}
    passes = []
    for number in range(swept.passes):
        schedule = schedule_pass(network, number, rows)
        storage = store_pass(plan, schedule, swept, always)
        passes.append(PassPlan(schedule, storage, _resident_units(graph, units, swept, number), equal_bands(schedule)))
    last = tuple(
        unit for number in range(swept.passes, 1 + max(swept.resident.values(), default=0))
        for unit in _resident_units(graph, units, swept, number)
    )
    return StreamPlan(plan, rows, units, swept, always, tuple(passes), last)


def _resident_units(graph, units, swept: SweptTensors, number: int) -> tuple[Subgraph, ...]:
    """The units that compute resident tensors before a pass."""
    return tuple(unit for unit in units if swept.resident.get(graph.nodes[unit.nodes[-1]].output) == number)
