"""A network as sweeps of bands, each with its storage: all that a run in bounded memory does, before it is lowered."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from brickrt.graph.ir import Graph
from brickrt.ops.base import Op
from brickrt.ops.operators.partial_reduce import Segmented
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.ops.types import Shape
from brickrt.plan.cost.strassen import LEVELS, PAIRED
from brickrt.plan.plan import Plan
from brickrt.plan.stream.band_plan import COLUMNS, BandPlan, Cuts, plan_band, plan_resident
from brickrt.plan.stream.band_range import BandRange, band_range
from brickrt.plan.stream.band_schedule import BandSchedule, Network, schedule_parts, schedule_pass
from brickrt.plan.stream.band_storage import (
    SMALL_SAVED_SHARE,
    BandStorage,
    common_extents,
    store_pass,
    stored_bytes,
    stored_shape,
)
from brickrt.plan.stream.equal_bands import equal_bands, row_repeats, share_of_new_bands
from brickrt.plan.stream.row_axes import find_row_axes
from brickrt.plan.stream.rows.rolled_rows import joins_rows, reads_far
from brickrt.plan.stream.rows.swept_rows import UNREAD, Columns
from brickrt.plan.stream.strip_parts import Standing, inner_strips, strip_extents, strip_parts
from brickrt.plan.stream.swept_tensors import (
    SweptTensors,
    check_resident_units,
    computed_nodes,
    find_swept_tensors,
    node_times,
    resident_units,
)
from brickrt.plan.stream.units.attention_units import Attention, find_attentions, with_attentions
from brickrt.plan.stream.units.band_units import as_units
from brickrt.plan.stream.units.reshape_chains import with_chains
from brickrt.plan.stream.units.whole_tensors import WholeTensors, place_whole_tensors
from brickrt.plan.subgraph import Subgraph

SAMPLED_BANDS = 48  # that are planned where all that follow are like the last, or more where they are short:
SAMPLED_ROWS = 256
UNLIKE_BANDS = 6  # at the ends of a sweep, that are unlike all others, and one of the others
STRIP_NUMBERS_AT_A_TIME = 4  # of which samples are made
PROBED_STRIPS = (7, 3)  # that are compared: none begins where halves or quarters do
AXIS = 2  # rows of images, planes of volumes


@dataclass(frozen=True, eq=False)
class Sweep:
    """One way down the network's rows: all of a pass, or a strip of its last one. `before` are the units that run on
    whole tensors before it. `times` counts the strips that it stands for, and `share` is the part of its bands that was
    planned; `new` is the share of its bands that are like none before, where not all of them are known."""

    number: int  # of the pass
    schedule: BandSchedule
    storage: BandStorage
    before: tuple[Subgraph, ...]
    times: int = 1
    share: float = 1.0
    new: float | None = None

    @property
    def distinct(self) -> int:
        """Bands that do what no other does, about: each of them has tables."""
        ahead = self.schedule.ahead
        if self.new is None:
            return max(ahead + UNLIKE_BANDS, int(np.count_nonzero(self.like == np.arange(self.schedule.bands))))
        return ahead + max(UNLIKE_BANDS, math.ceil(self.new * (self.all_bands - ahead)))

    @property
    def all_bands(self) -> int:
        """The bands of the sweep, those included that were not planned."""
        ahead = self.schedule.ahead
        return ahead + round((self.schedule.bands - ahead) / self.share)

    @cached_property
    def like(self) -> np.ndarray:
        """The first band that does what each band does, int64 [bands]."""
        return equal_bands(self.schedule)


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """A plan as sweeps. `rows` is the height of a band, in rows of the tallest input or output, `strips` in how many
    parts each of the other spatial axes is cut, `saved` as `store_pass` has it; `last` are the units that run on whole
    tensors after all sweeps. `whole` are the tensors that are held whole, `spilled` names those that go
    through files, `cuts` the units as bands of any plan of these units run them."""

    plan: Plan
    rows: int
    strips: tuple[int, ...]
    saved: float
    units: tuple[Subgraph, ...]
    swept: SweptTensors
    whole: WholeTensors
    sweeps: tuple[Sweep, ...]
    last: tuple[Subgraph, ...]
    spilled: tuple[str, ...] = ()
    cuts: Cuts = field(default_factory=dict, repr=False)

    @cached_property
    def attentions(self) -> tuple[Attention, ...]:
        """What compares all positions of an image with all others."""
        return find_attentions(self.plan.graph, self.swept.axes)

    def spill_shapes(self) -> dict[str, Shape]:
        """The shape of each spilled tensor as bytes."""
        graph, layouts, lanes = self.plan.graph, self.plan.layouts, self.plan.device.lanes
        kinds = {name: graph.types[name] for name in self.spilled}
        return {name: stored_shape(kind, kind.shape, layouts[name], lanes) for name, kind in kinds.items()}

    def users(self, name: str) -> list[int]:
        """The sweeps that write a spilled tensor, one, and those that read it."""
        return [n for n, one in enumerate(self.sweeps) if name in (*one.schedule.sources, *one.schedule.sinks)]

    def band_plan(self, sweep: int, band: int, skipped: frozenset[int] = frozenset()) -> BandPlan:
        """What a band of a sweep does, without the units whose numbers are skipped."""
        one = self.sweeps[sweep]
        return plan_band(self.plan, self.units, one.schedule, one.storage, band, skipped, self.cuts)

    def bands(self, sweep: int, wanted: int, end: int | None = None) -> BandRange:
        """What runs for the results of the bands [wanted, end) of a sweep."""
        schedule = self.sweeps[sweep].schedule
        return band_range(schedule, self.units, wanted, schedule.bands if end is None else end)

    def skipped(self, sweep: int, bands: BandRange, band: int) -> frozenset[int]:
        """The units that a band at the beginning of a range leaves out."""
        graph = self.plan.graph
        units = ((number, self.units[number]) for number in self.sweeps[sweep].schedule.units)
        return frozenset(n for n, unit in units if not bands.runs(graph.nodes[unit.nodes[-1]].output, band))

    def resident_plan(self, sweep: int) -> BandPlan | None:
        """What runs before a sweep, or after the last; None where that is nothing."""
        units = self.sweeps[sweep].before if sweep < len(self.sweeps) else self.last
        storage = self.sweeps[min(sweep, len(self.sweeps) - 1)].storage
        return plan_resident(self.plan, units, storage) if units else None


@dataclass(frozen=True)
class StreamPlanner:
    """Makes stream plans of one plan; `whole_bytes` are the sizes of the tensors that all sweeps hold whole."""

    plan: Plan
    network: Network
    whole_bytes: dict[str, int]
    _known: dict[tuple[int, int, bool, float], Sweep] = field(default_factory=dict, repr=False)
    _stored: dict[tuple[int, tuple[str, ...]], Sweep] = field(default_factory=dict, repr=False)
    _samples: dict[tuple[int, tuple[int, ...]], list[tuple[BandSchedule, int]]] = field(
        default_factory=dict, repr=False
    )
    _cuts: Cuts = field(default_factory=dict, repr=False)
    _expected: list[tuple[int, ...]] = field(default_factory=list, repr=False)

    @staticmethod
    def of(plan: Plan, slices: Collection[str], views: Collection[str]) -> StreamPlanner:
        """Raises BrickError naming a node that is not run band by band."""
        graph, lanes = plan.graph, plan.device.lanes
        # the rows that Strassen's scheme adds up depend on where boxes begin; of paired products each row is by itself
        kept = {k: name for k, name in plan.algorithms.items() if name not in LEVELS or name == PAIRED}
        plan = replace(plan, algorithms=kept)
        blocks = {name: lanes for name, layout in plan.layouts.items() if layout == "blocked"}
        axes = find_row_axes(graph, AXIS, blocks)
        slices = {name for name in slices if name not in axes.rolls}
        attentions = find_attentions(graph, axes)
        units = tuple(as_units(graph, plan.subgraphs, axes, {k for one in attentions for k in one.nodes}))
        swept = find_swept_tensors(graph, units, axes, slices)
        units = tuple(with_attentions(graph, with_chains(graph, units, swept.chains, AXIS), attentions))
        check_resident_units(graph, units, swept, slices)
        views = {name for name in views if name not in swept.level and graph.producers[name] not in swept.chained}
        whole = [name for name in (*swept.collected, *swept.resident) if name not in slices and name not in views]
        types = {name: graph.types[name] for name in whole}
        sizes = {n: stored_bytes(kind, kind.shape, plan.layouts[n], lanes) for n, kind in types.items()}
        return StreamPlanner(plan, Network(graph, units, swept, slices, blocks), sizes)

    def spilling(self, names: Collection[str]) -> StreamPlanner:
        """The same, where these tensors are spilled, in the order of the graph. Each must be one of `may_spill`."""
        spilled = tuple(name for name in self.may_spill if name in names)
        assert len(spilled) == len(set(names)), set(names) - set(spilled)
        return StreamPlanner(self.plan, replace(self.network, spilled=spilled), self.whole_bytes)

    @cached_property
    def attentions(self) -> tuple[Attention, ...]:
        """What compares all positions of an image with all others."""
        return find_attentions(self.plan.graph, self.network.swept.axes)

    @cached_property
    def may_spill(self) -> tuple[str, ...]:
        """The tensors that may be spilled: swept ones that units store and later passes may need, but no collected, and
        none of units that also make swept sums of parts, which later passes may need and do not find in a file."""
        graph, network, swept = self.plan.graph, self.network, self.network.swept
        moving = swept.level.keys() - swept.collected.keys()
        stored = [
            graph.nodes[unit.nodes[-1]].output
            for unit in network.units
            if moving.isdisjoint(graph.nodes[k].output for k in unit.partial_reductions)
        ]
        inside = {*swept.collected, *network.inplace}
        return tuple(
            name
            for name in stored
            if swept.level.get(name, swept.passes) < swept.passes - 1 and name not in inside and graph.types[name].size
        )

    @property
    def may_cut(self) -> bool:
        """Whether the last pass may be cut in strips: in exact plans norms along rows must not be, as they round
        otherwise where rows begin elsewhere. Softmax of an attention's scores is over all of an image."""
        graph, level = self.plan.graph, self.network.swept.level
        scores = {k for one in self.attentions for k in one.nodes}
        others = (node for k, node in enumerate(graph.nodes) if k not in scores)
        norms = (node for node in others if isinstance(node.op, Rowwise) and node.output in level)
        return not self.plan.options.exact or not any(norms)

    @property
    def tall(self) -> int:
        """Rows of the tallest input or output."""
        graph = self.plan.graph
        swept = self.network.swept
        ends = [name for name in (*graph.inputs, *graph.outputs) if name in swept.level]
        return max((graph.types[name].shape[swept.axes.of(name)] for name in ends), default=0)

    def stream_plan(
        self, rows: int, strips: tuple[int, ...] = (), sample: bool = False, saved: float = SMALL_SAVED_SHARE
    ) -> StreamPlan:
        """The sweeps in bands of `rows` rows, the last pass in so many `strips` along the axes behind the rows; `saved`
        as `store_pass` has it.

        With `sample`, of strips and of bands that are alike there are few: enough for memory and work.
        """
        swept, units, graph = self.network.swept, self.network.units, self.plan.graph
        sweeps = [s for number in range(swept.passes) for s in self._sweeps(number, rows, strips, sample, saved)]
        after = range(swept.passes, 1 + max(swept.resident.values(), default=0))
        last = [unit for number in after for unit in resident_units(graph, units, swept, number)]
        made = tuple(units), swept, self.whole, tuple(sweeps), tuple(last), self.network.spilled, self._cuts
        return StreamPlan(self.plan, rows, strips, saved, *made)

    @cached_property
    def uneven(self) -> bool:
        """Whether later bands may hold more rows than the first: parts of an image are joined that were cut apart, rows
        are moved far, or a tensor has so few rows that the first bands make one at most."""
        graph, axes = self.plan.graph, self.network.swept.axes.axes
        far = any(reads_far(graph, node, axes, SAMPLED_ROWS) for node in graph.nodes)
        return far or any(joins_rows(graph, node, axes) for node in graph.nodes) or self.coarsest > SAMPLED_ROWS

    @cached_property
    def coarsest(self) -> float:
        """To how many rows of the tallest input or output there is one of the tensor that has fewest, but for those
        that have one alone. Sums of rows are made as the rows come, however many there are of each."""
        graph, swept = self.plan.graph, self.network.swept
        made = (name for name in swept.level if not isinstance(_maker(graph, name), Segmented))
        rows = (graph.types[name].shape[swept.axes.of(name)] for name in made)
        return self.tall / min((extent for extent in rows if extent > 1), default=max(1, self.tall))

    def _most(self, rows: int) -> int | None:
        """Bands of a sample; None for all."""
        return None if self.uneven else max(SAMPLED_BANDS, SAMPLED_ROWS // rows)

    def _sweeps(self, number: int, rows: int, strips: tuple[int, ...], sample: bool, saved: float) -> list[Sweep]:
        """The sweeps of a pass."""
        swept, graph = self.network.swept, self.plan.graph
        cut = number == swept.passes - 1 and not any(swept.level[name] == number for name in swept.collected)
        if not cut:
            return [self._whole_sweep(number, rows, sample, saved)]
        schedules = self._scheduled(number, rows, strips, sample)
        extents = common_extents([schedule for schedule, _ in schedules])
        before = resident_units(graph, self.network.units, swept, number)
        return [
            self._sweep(number, schedule, extents, saved, sample, () if k else before, times)
            for k, (schedule, times) in enumerate(schedules)
        ]

    def _scheduled(
        self, number: int, rows: int, strips: tuple[int, ...], sample: bool
    ) -> list[tuple[BandSchedule, int]]:
        """The schedule of each strip of the last pass, and for how many it stands; of samples each is made once,
        however rows are kept."""
        key = rows, strips
        if sample and key in self._samples:
            return self._samples[key]
        most = self._most(rows) if sample else None
        if sample and most is not None and strips in self._expected:
            at = self._expected.index(strips)
            numbers = [
                one for one in self._expected[at : at + STRIP_NUMBERS_AT_A_TIME] if (rows, one) not in self._samples
            ]
            self._schedule_together(number, rows, numbers, most)
            return self._samples[key]
        parts = strip_parts(self.plan.graph, self.network.swept, strips, self._standing if sample else "each")
        found = [(schedule_pass(self.network, number, rows, part, most), times) for part, times in parts]
        if sample:
            self._samples[key] = found
        return found

    def _schedule_together(self, number: int, rows: int, numbers: Sequence[tuple[int, ...]], most: int) -> None:
        """Makes samples for several numbers of strips at once."""
        graph, swept = self.plan.graph, self.network.swept
        cut = [strip_parts(graph, swept, strips, self._standing) for strips in numbers]
        every = [part for parts in cut for part, _ in parts]
        made = iter(schedule_parts(self.network, number, rows, every, most))
        for strips, parts in zip(numbers, cut, strict=True):
            self._samples[rows, strips] = [(next(made), times) for _, times in parts]

    def expect(self, strips: Sequence[tuple[int, ...]]) -> None:
        """Tells which numbers of strips are likely to be asked for, in this order: samples in bands of some height are
        made for the few that follow with the first. Parts that are joined in another order are scheduled one by one."""
        rolls = self.network.swept.axes.rolls
        if not (rolls.starts or rolls.ends):
            self._expected[:] = strips

    @cached_property
    def whole(self) -> WholeTensors:
        """What all sweeps hold whole."""
        graph, swept = self.plan.graph, self.network.swept
        times = node_times(graph, self.network.units, swept, self.network.spilled)
        return place_whole_tensors(graph, self.whole_bytes, times, 2 * swept.passes)

    @cached_property
    def _standing(self) -> Standing:
        """Which strips stand for all others: the one in the middle, unless one holds more columns, as where an image
        is mirrored: then each stands for itself."""
        graph, swept = self.plan.graph, self.network.swept
        parts = [part for part, _ in strip_parts(graph, swept, PROBED_STRIPS, "each")]
        middle, beside = inner_strips(graph, swept, PROBED_STRIPS)
        for extents in strip_extents(self.network, parts).values():
            usual, more = extents[middle], extents - extents[middle]
            unlike = more > np.maximum(usual // 8, COLUMNS)
            if unlike.any() or (-more[beside] > np.maximum(extents[beside] // 8, COLUMNS)).any():
                return "each"
        return "middle"

    @cached_property
    def _new_bands(self) -> tuple[float, ...]:
        """The share of bands that are like none before, of each pass, by a sample of tall ones. Where a node makes each
        band of a pass new, so it does in later passes that compute it."""
        graph, axes = self.plan.graph, self.network.swept.axes
        unlike = {k for k, node in enumerate(graph.nodes) if not row_repeats(graph, node, axes)}
        rows = max(1, self.tall // SAMPLED_BANDS)
        rows = rows if self.uneven else min(rows, SAMPLED_ROWS)
        found, certain = list[float](), list[set[int]]()
        for number in range(self.network.swept.passes):
            here = unlike & computed_nodes(graph, self.network.swept, self.network.spilled, number)
            if not here and not self.uneven:
                found.append(0.0)
                continue
            if any(some <= here for some in certain):
                found.append(1.0)
                continue
            schedule = schedule_pass(self.network, number, rows, most=None if self.uneven else SAMPLED_BANDS)
            found.append(share_of_new_bands(schedule, self.uneven))
            if found[-1] == 1.0 and here:
                certain.append(here)
        return tuple(found)

    def _whole_sweep(self, number: int, rows: int, sample: bool, saved: float) -> Sweep:
        """The sweep of a pass that is not cut in strips."""
        key = number, rows, sample, saved
        if key not in self._known:
            other = next((self._known[k].schedule for k in self._known if k[:3] == key[:3]), None)
            schedule = other or schedule_pass(self.network, number, rows, most=self._most(rows) if sample else None)
            before = resident_units(self.plan.graph, self.network.units, self.network.swept, number)
            self._known[key] = self._sweep(number, schedule, common_extents([schedule]), saved, sample, before)
        return self._known[key]

    def _sweep(
        self,
        number: int,
        schedule: BandSchedule,
        extents: dict[str, Shape],
        saved: float,
        sample: bool,
        before: tuple[Subgraph, ...],
        times: int = 1,
    ) -> Sweep:
        columns = Columns(least=UNREAD) if sample else self.network.columns
        storage = store_pass(self.plan, schedule, self.whole, extents, columns, saved)
        kinds = tuple(one.kind for one in storage.tensors.values())
        if sample and (id(schedule), kinds) in self._stored:  # as where few rows are kept, whatever the share
            return self._stored[id(schedule), kinds]
        share = (schedule.bands - schedule.ahead) / max(1, -(-self.network.tall // schedule.height))
        new = self._new_bands[number] if sample else None
        made = Sweep(number, schedule, storage, before, times, share, new)
        if sample:
            self._stored[id(schedule), kinds] = made
        return made


def _maker(graph: Graph, name: str) -> Op | None:
    """The operator that makes a tensor; None of an input."""
    return graph.nodes[graph.producers[name]].op if name in graph.producers else None
