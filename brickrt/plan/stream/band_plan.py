"""The plan of one band: the units that run in it on the rows that they compute, and what restores and saves rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from brickrt.graph.ir import Node
from brickrt.ops.cpu.strassen.sizes import chunks_of, group_columns
from brickrt.ops.expr import arg
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.partial_reduce import Segmented
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.ops.types import Boxes, Shape
from brickrt.plan.cost.strassen import F32_BYTES, PAIRED
from brickrt.plan.geometry.row_bands import with_rows
from brickrt.plan.plan import Plan
from brickrt.plan.stream.band_schedule import BandSchedule
from brickrt.plan.stream.band_storage import BandStorage, kept_name, storage_origin, with_extent
from brickrt.plan.subgraph import Subgraph

COLUMNS = 64  # columns of a strip are a multiple of this
FEW_COLUMNS = 4  # columns of a piece are, where there are no partial reductions
FEW_PIXELS = 256  # that read the weights of a product with paired elements at least, in all but small bands
PIECES = 2  # tasks per core, of a layer that is cut once more


# Units as bands run them, by their nodes, their partial reductions and the extents that a band computes.
Cuts = dict[tuple[Shape, Shape, Shape], Subgraph]


@dataclass(frozen=True)
class Place:
    """Where a tensor lies while a band runs: storage of `extents` whose first element is `origin` of the tensor;
    `slot` counts the persistent tensors, −1 is the arena."""

    extents: Shape
    origin: Shape
    slot: int = -1


@dataclass(frozen=True)
class BandPlan:
    """`plan` has the subgraphs of one band, on a graph whose inputs are the persistent tensors. `boxes` has, by node,
    the part of its output that is computed; `places` the storage of each tensor. `restores` and `saves` map the nodes
    that copy rows of a tensor, from where they are kept and back, to its name."""

    plan: Plan
    boxes: dict[int, Boxes]
    places: dict[str, Place]
    restores: dict[int, str] = field(default_factory=dict)
    saves: dict[int, str] = field(default_factory=dict)


def plan_band(
    plan: Plan,
    units: Sequence[Subgraph],
    schedule: BandSchedule,
    storage: BandStorage,
    band: int,
    skipped: Collection[int] = (),
    cuts: Cuts | None = None,
) -> BandPlan:
    """The plan of a band of a sweep, without the units whose numbers are skipped; `cuts` keeps what bands that compute
    as much of a unit have alike."""
    return _BandPlanner(plan, units, schedule, storage, band, skipped, {} if cuts is None else cuts).run()


def plan_resident(plan: Plan, units: Sequence[Subgraph], storage: BandStorage) -> BandPlan:
    """The plan of what runs between two passes, on whole tensors."""
    graph = plan.graph
    boxes = {k: Boxes.whole(graph.out(graph.nodes[k]).shape) for unit in units for k in unit.members}
    slots = {name: slot for slot, name in enumerate(storage.persistent)}
    whole = {name: one for name, one in storage.tensors.items() if one.kind in ("whole", "collected")}
    places = {name: Place(one.extents, (), slots[name]) for name, one in whole.items()}
    band_graph = replace(graph, inputs=tuple(storage.persistent), outputs=())
    return BandPlan(replace(plan, graph=band_graph, subgraphs=tuple(units)), boxes, places)


class _BandPlanner:
    def __init__(
        self,
        plan: Plan,
        units: Sequence[Subgraph],
        schedule: BandSchedule,
        storage: BandStorage,
        band: int,
        skipped: Collection[int],
        cuts: Cuts,
    ) -> None:
        self.plan, self.schedule, self.storage, self.band, self.cuts = plan, schedule, storage, band, cuts
        self.units = [units[number] for number in schedule.units if number not in skipped]
        self.nodes = list(plan.graph.nodes)
        self.types, self.layouts = dict(plan.graph.types), dict(plan.layouts)
        self.boxes: dict[int, Boxes] = {}
        self.places: dict[str, Place] = {}
        self.restores: dict[int, str] = {}
        self.saves: dict[int, str] = {}
        self.slots = {name: slot for slot, name in enumerate(storage.persistent)}

    def run(self) -> BandPlan:
        active = [s for unit in self.units if (s := self.active(unit)) is not None]
        for name in self.storage.tensors:
            self.place(name)
        before, after = self.copies(active)
        subgraphs: list[Subgraph] = []
        for at, unit in enumerate(active):
            subgraphs += [*before.get(at, ()), unit, *after.get(at, ())]
        graph = replace(
            self.plan.graph,
            nodes=tuple(self.nodes),
            types=self.types,
            inputs=tuple(self.storage.persistent),
            outputs=(),
        )
        plan = replace(self.plan, graph=graph, layouts=self.layouts, subgraphs=tuple(subgraphs))
        return BandPlan(plan, self.boxes, self.places, self.restores, self.saves)

    def active(self, unit: Subgraph) -> Subgraph | None:
        """The unit as it runs in this band, cut for its rows; None where it computes nothing."""
        graph, rows = self.plan.graph, self.schedule.rows
        output = graph.nodes[unit.nodes[-1]].output
        partials = tuple(k for k in unit.partial_reductions if graph.nodes[k].output in rows)
        if output not in rows:  # a slice that is read in place
            return replace(unit, partial_reductions=())
        box = self.schedule.box(output, self.band)
        if not box.volumes[0]:
            return None
        self.boxes[unit.nodes[-1]] = box
        for k in partials:
            self.boxes[k] = self.schedule.box(graph.nodes[k].output, self.band)
        extents = tuple(box.extents[0].tolist())
        key = unit.nodes, partials, extents
        if key not in self.cuts:
            self.cuts[key] = self.cut(unit, partials, extents)
        return self.cuts[key]

    def cut(self, unit: Subgraph, partials: tuple[int, ...], extents: Shape) -> Subgraph:
        """The unit as it runs in bands that compute such extents of its output."""
        output, step = self.plan.graph.nodes[unit.nodes[-1]].output, self.column_step(unit, partials)
        most = self.paired_brick(unit) if self.paired(unit) else unit.brick
        brick = band_brick(most, extents, self.schedule.axes.of(output), self.plan.device.cores, step)
        band = tuple(min(a, b) for a, b in zip(unit.band, brick, strict=True))
        node_bricks = unit.node_bricks if unit.strategy == "padded" else (brick,)
        return replace(unit, brick=brick, band=band, node_bricks=node_bricks, partial_reductions=partials)

    def paired(self, unit: Subgraph) -> bool:
        """Whether a unit is a product with paired elements."""
        return unit.strategy != "padded" and self.plan.algorithms.get(unit.nodes[-1]) == PAIRED

    def paired_brick(self, unit: Subgraph) -> Shape:
        """The brick of a product with paired elements, of which images have no more pixels than their scaled copies
        have room for in half of L2, or few: rows of large images are longer."""
        graph, device = self.plan.graph, self.plan.device
        node = graph.nodes[unit.nodes[-1]]
        if not isinstance(node.op, Conv):
            return unit.brick
        each = F32_BYTES * chunks_of(graph.ins(node)[0].shape[1], device.lanes, 0)[1]
        edges, room = list(unit.brick), max(FEW_PIXELS, device.l2 // 2 // each)
        for axis in reversed(range(2, len(edges))):
            edges[axis] = min(edges[axis], room)
            room = max(1, room // edges[axis])
        return tuple(edges)

    def column_step(self, unit: Subgraph, partials: Sequence[int]) -> int:
        """Columns that pieces have a multiple of: whole segments of partial reductions. 0 where columns must stay
        together, as norms round otherwise, or each piece would compute the scores of an attention."""
        op, rank = self.plan.graph.nodes[unit.nodes[-1]].op, len(unit.brick)
        lengths = [one.length for k in partials if isinstance(one := self.plan.graph.nodes[k].op, Segmented)]
        if isinstance(op, MatMul) and self.paired(unit):
            return math.lcm(group_columns(self.plan.device.lanes, 0), *lengths)
        scores = isinstance(op, MatMul) and unit.strategy == "padded"
        if scores or (isinstance(op, Rowwise) and rank - 1 in op.axes):
            return 0
        return math.lcm(*lengths) if lengths else FEW_COLUMNS

    def place(self, name: str) -> None:
        """Where a tensor lies."""
        stored, axis = self.storage.tensors[name], self.schedule.axes.of(name)
        if stored.kind == "whole":
            self.places[name] = Place(stored.extents, (), self.slots[name])
            return
        rows = self.schedule.rows[name]
        if stored.starts is not None:  # its base is moved to the band's first new row
            origin = storage_origin(stored, axis, int(rows.lo[self.band]))
            self.places[name] = Place(stored.extents, origin, self.slots[name])
            return
        self.places[name] = Place(stored.extents, storage_origin(stored, axis, int(rows.keep[self.band])))
        if stored.kind == "saved":
            kept, extents = kept_name(name), with_extent(stored.extents, axis, stored.kept)
            self.types[kept], self.layouts[kept] = self.types[name], self.layouts[name]
            origin = storage_origin(stored, axis, int(rows.keep[self.band]))
            self.places[kept] = Place(extents, origin, self.slots[kept])
            after = self.after_name(name)
            self.types[after], self.layouts[after] = self.types[name], self.layouts[name]
            origin = storage_origin(stored, axis, rows.left_after(self.band))
            self.places[after] = Place(extents, origin, self.slots[kept])

    def after_name(self, name: str) -> str:
        """The name of the saved rows as the next band finds them, in the same storage."""
        return f"{kept_name(name)}:after"

    def copies(self, active: Sequence[Subgraph]) -> tuple[dict[int, list[Subgraph]], dict[int, list[Subgraph]]]:
        """What restores rows before the unit that first uses a tensor, and what saves rows after the unit that makes
        it, by place in the order of units."""
        uses = self.uses(active)
        before: dict[int, list[Subgraph]] = {}
        after: dict[int, list[Subgraph]] = {}
        for name, stored in self.storage.tensors.items():
            if stored.kind != "saved" or name not in uses:
                continue
            rows, band = self.schedule.rows[name], self.band
            keep, lo, hi = (int(a[band]) for a in (rows.keep, rows.lo, rows.hi))
            left = rows.left_after(band)
            first, made = uses[name]
            if keep < lo:
                before.setdefault(first, []).append(self.copy(name, kept_name(name), name, keep, lo))
                self.restores[len(self.nodes) - 1] = name
            if left < hi:
                after.setdefault(made, []).append(self.copy(name, name, self.after_name(name), left, hi))
                self.saves[len(self.nodes) - 1] = name
        return before, after

    def uses(self, active: Sequence[Subgraph]) -> dict[str, tuple[int, int]]:
        """Per tensor the first unit that uses it, and the unit that makes it, or that first one."""
        graph = self.plan.graph
        found: dict[str, tuple[int, int]] = {}
        for at, unit in enumerate(active):
            for k in unit.members:
                for name in graph.nodes[k].inputs:
                    found.setdefault(self.root(name), (at, at))
                output = graph.nodes[k].output
                found[output] = (found[output][0] if output in found else at, at)
        return found

    def root(self, name: str) -> str:
        """The stored tensor that a slice is of."""
        producers = self.plan.graph.producers
        while name in producers and name not in self.storage.tensors:
            source = self.plan.graph.nodes[producers[name]].inputs
            if not source:
                break
            name = source[0]
        return name

    def copy(self, name: str, source: str, target: str, lo: int, hi: int) -> Subgraph:
        """A copy of the rows [lo, hi) of a tensor."""
        across, axis = self.schedule.across[name], self.schedule.axes.of(name)
        row = across.lo[:, axis] * 0
        box = with_rows(across, row + lo, row + hi, axis)
        k = len(self.nodes)
        self.nodes.append(Node(f"{source} to {target}", Map(arg(0, self.types[name].dtype)), (source,), target))
        self.boxes[k] = box
        extents = tuple(box.extents[0].tolist())
        brick = band_brick(extents, extents, axis, self.plan.device.cores)
        return Subgraph((k,), "layerwise", brick, brick, (brick,), 0.0, 1.0, 1, 1, 0, 0, "rows between bands")


def band_brick(brick: Shape, extents: Shape, axis: int, cores: int, step: int = FEW_COLUMNS) -> Shape:
    """Bricks of a box, none larger than `brick`, even along the swept axis, and enough for all cores: cut once more
    along the last axis in multiples of `step`, or along the rows where that is 0."""
    edges = [max(1, min(edge, extent)) for edge, extent in zip(brick, extents, strict=True)]
    edges[axis] = -(-extents[axis] // -(-extents[axis] // edges[axis]))
    pieces = math.prod(-(-extent // edge) for extent, edge in zip(extents, edges, strict=True))
    want = PIECES * cores
    if pieces < want and step and len(edges) > axis + 1:
        columns = -(-edges[-1] // -(-want // pieces))
        edges[-1] = min(edges[-1], -(-columns // step) * step)
    elif pieces < want:
        edges[axis] = -(-edges[axis] // -(-want // pieces))
    return tuple(edges)
