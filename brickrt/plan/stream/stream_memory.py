"""The memory that a stream plan takes, known before anything is lowered."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from brickrt.plan.cost.packed_weights import held_weights_bytes, packed_bytes
from brickrt.plan.geometry.arena_packing import Lifetime, aligned, arena_size
from brickrt.plan.geometry.bricks import BrickGrid
from brickrt.plan.geometry.row_bands import buffer_extents, sweep, swept_axis
from brickrt.plan.plan import Plan
from brickrt.plan.stream.band_plan import BandPlan
from brickrt.plan.stream.band_schedule import BandSchedule
from brickrt.plan.stream.band_storage import RING_ALIGNMENT, persistent_offsets, stored_bytes
from brickrt.plan.stream.stream_plan import StreamPlan, Sweep
from brickrt.plan.subgraph import Subgraph

RECORD_BYTES = 8 * 32  # of a step's record with its dependencies, about
READ_BYTES = 2500  # of what a schedule has of one input of a node, its share of the rows of tensors included, about
BAND_BYTES = 20  # and by band, which all strips of a pass share
WORKSPACE = 2**23  # bytes of a thread's scratch that kernels such as Winograd's may take
LEAST_HELD, MOST_HELD = 4, 32  # bands of which tables are there at a time, where they are made as bands come:
MANY_TABLES = 2**26  # bytes of tables from which on they are, as it takes seconds to make them all before the first
MAKING_FACTOR = 4  # over what the tables of a band take, while they are made
TYPICAL_BANDS = 4  # that are looked at, where not every band computes some of each tensor
ROW_PERIOD = 8  # at its multiples, operators that skip or double rows are alike
# By which a process grows while files are opened (packages imported for them), kernels compiled and loaded, helpers and
# threads started: about 60 MiB where kernels are in the cache (NOTES.md).
COMPILING_BYTES = 192 * 2**20


@dataclass(frozen=True)
class StreamMemory:
    """Bytes of a run: what the process has before it (`runtime`) and grows by compiling; constants as kernels read
    them; persistent tensors; the arena; scratch of all threads; schedules, and tables of all distinct bands, or of
    `held` of them that are there at a time; buffers of readers and writers."""

    runtime: int
    constants: int
    persistent: int
    arena: int
    scratch: int
    tables: int
    buffers: int
    held: int | None = None

    @property
    def total(self) -> int:
        """All bytes, at most."""
        parts = (self.runtime, COMPILING_BYTES, self.constants, self.persistent, self.arena, self.scratch, self.tables)
        return sum(parts) + self.buffers


def persistent_bytes(plan: StreamPlan) -> int:
    """Bytes of the tensors that are held whole, and of the largest sweep."""
    largest = max((persistent_offsets(one.storage)[1] for one in plan.sweeps), default=0)
    return largest + RING_ALIGNMENT  # so that what begins at the end of all begins somewhere


@dataclass(frozen=True)
class SweepBytes:
    """Bytes of one sweep: the arena, scratch of a thread, and tables, of all bands and of one."""

    arena: int
    scratch: int
    tables: int
    table: int


@dataclass
class Known:
    """What was found out about other plans of the same planner: bytes of whole sweeps; of the scratch of units by what
    these are made of, their bricks and boxes; and numbers for what units are made of, by their nodes and by itself."""

    sweeps: dict[Sweep, SweepBytes] = field(default_factory=dict)
    scratch: dict[tuple[object, ...], int] = field(default_factory=dict)
    made_of: dict[tuple[int, ...], int] = field(default_factory=dict)
    numbers: dict[tuple[object, ...], int] = field(default_factory=dict)


def project_stream(
    plan: StreamPlan,
    slices: Collection[str],
    threads: int,
    runtime: int,
    buffers: int = 0,
    known: Known | None = None,
    limit: int | None = None,
) -> StreamMemory:
    """What a run of a stream plan will hold; `runtime` and `buffers` are bytes that the caller knows. `known` keeps
    what sweeps take that other plans of the same planner have too. With a `limit`, where all tables are many, or beyond
    it, there are those of a few bands at a time."""
    found = known or Known()
    slices = {name for name in slices if name not in plan.swept.axes.rolls}
    for number, one in enumerate(plan.sweeps):
        if one not in found.sweeps:
            found.sweeps[one] = _sweep_bytes(plan, number, slices, found)
    sweeps = [found.sweeps[one] for one in plan.sweeps]
    every = StreamMemory(
        runtime=runtime,
        constants=_constants(plan.plan),
        persistent=persistent_bytes(plan),
        arena=max((one.arena for one in sweeps), default=0),
        scratch=threads * (max((one.scratch for one in sweeps), default=0) + _workspace(plan.plan)),
        tables=schedule_bytes(plan) + sum(one.tables for one in sweeps),
        buffers=buffers,
    )
    return every if limit is None else _with_few_tables(every, sweeps, limit)


def _workspace(plan: Plan) -> int:
    """Bytes of a thread's scratch behind that of bricks."""
    return WORKSPACE + held_weights_bytes(plan.graph, plan.algorithms)


def schedule_bytes(plan: StreamPlan) -> int:
    """Bytes of the schedules of all sweeps, about."""
    found, shared = 0, dict[int, int]()
    for one in plan.sweeps:
        reads = len(one.schedule.reads)
        found += one.times * READ_BYTES * reads
        shared[one.number] = max(shared.get(one.number, 0), BAND_BYTES * reads * one.all_bands)
    return found + sum(shared.values())


def _with_few_tables(every: StreamMemory, sweeps: Sequence[SweepBytes], limit: int) -> StreamMemory:
    """The memory with tables of some bands at a time, where all of them are many or beyond the limit. One that is being
    made counts several times."""
    tables, table = sum(one.tables for one in sweeps), max((one.table for one in sweeps), default=0)
    if tables <= (LEAST_HELD + MAKING_FACTOR) * table or (tables <= MANY_TABLES and every.total <= limit):
        return every
    room = (limit - (every.total - tables)) // max(1, table) - MAKING_FACTOR
    held = max(LEAST_HELD, min(MOST_HELD, room, tables // table))
    return replace(every, tables=every.tables - tables + (held + MAKING_FACTOR) * table, held=held)


def _sweep_bytes(plan: StreamPlan, number: int, slices: Collection[str], known: Known) -> SweepBytes:
    """What a sweep takes, by bands in which all that it computes is computed."""
    one = plan.sweeps[number]
    usual = [plan.band_plan(number, band) for band in _typical(one.schedule)]
    steps = max(sum(_steps(band, unit) for unit in band.plan.subgraphs) for band in usual)
    return SweepBytes(
        arena=max(arena_bytes(band, plan.plan, slices) for band in usual),
        scratch=max((_scratch(band, unit, slices, known) for band in usual for unit in band.plan.subgraphs), default=0),
        tables=one.distinct * one.times * RECORD_BYTES * steps,
        table=RECORD_BYTES * steps,
    )


def _typical(schedule: BandSchedule) -> list[int]:
    """The band in the middle of those that compute some of each tensor, or where none does those that compute most, a
    few."""
    active = np.stack([rows.hi > rows.lo for rows in schedule.rows.values()], axis=1)
    every = np.flatnonzero((active | ~active.any(axis=0)).all(axis=1))
    if len(every):
        return [int(every[len(every) // 2])]
    sets, first = np.unique(active, axis=0, return_index=True)
    most = np.argsort(-sets.sum(axis=1), kind="stable")[:TYPICAL_BANDS]
    return [int(band) for band in first[most]]


def arena_bytes(band: BandPlan, plan: Plan, slices: Collection[str]) -> int:
    """Bytes of the arena while a band runs."""
    users: dict[str, list[int]] = {}
    graph = band.plan.graph
    for s, unit in enumerate(band.plan.subgraphs):
        for k in unit.members:
            for name in (*graph.nodes[k].inputs, graph.nodes[k].output):
                while name in slices:
                    name = plan.graph.nodes[plan.graph.producers[name]].inputs[0]
                if name in band.places and band.places[name].slot < 0:
                    users.setdefault(name, []).append(s)
    lanes, layouts = plan.device.lanes, band.plan.layouts
    sizes = {name: stored_bytes(graph.types[name], band.places[name].extents, layouts[name], lanes) for name in users}
    lives = [Lifetime(name, sizes[name], at[0], at[-1], tuple(dict.fromkeys(at))) for name, at in users.items()]
    return arena_size(lives)


def _scratch(band: BandPlan, unit: Subgraph, slices: Collection[str], known: Known) -> int:
    """Bytes that a thread needs for the inner tensors of a padded brick: the same for units that are made of the same,
    in bricks as large that begin alike."""
    if unit.strategy != "padded" or unit.nodes[-1] not in band.boxes:
        return 0
    box = band.boxes[unit.nodes[-1]]
    if unit.nodes not in known.made_of:
        known.made_of[unit.nodes] = known.numbers.setdefault(_made_of(band, unit, slices), len(known.numbers))
    starts = (box.lo % ROW_PERIOD).tobytes(), (box.lo == 0).tobytes()
    edges = tuple(np.minimum(box.extents[0], unit.brick).tolist())
    key = known.made_of[unit.nodes], edges, unit.band, *starts
    if key not in known.scratch:
        known.scratch[key] = _inner_bytes(band, unit, slices)
    return known.scratch[key]


def _made_of(band: BandPlan, unit: Subgraph, slices: Collection[str]) -> tuple[object, ...]:
    """The operators of a unit, on what types and layouts, and which of them read which: equal for equal layers."""
    graph, layouts = band.plan.graph, band.plan.layouts
    numbers = {graph.nodes[k].output: number for number, k in enumerate(unit.nodes)}

    def seen(name: str) -> tuple[object, ...]:
        return numbers.get(name), name in graph.constants, name in slices, graph.types[name], layouts.get(name)

    nodes = (graph.nodes[k] for k in unit.nodes)
    return tuple((node.op, seen(node.output), *map(seen, node.inputs)) for node in nodes)


def _inner_bytes(band: BandPlan, unit: Subgraph, slices: Collection[str]) -> int:
    """Bytes of the inner tensors of a padded brick: the most that a brick of the unit needs of each, of those
    that stand for all."""
    graph, layouts, lanes = band.plan.graph, band.plan.layouts, band.plan.device.lanes
    read = {name for k in unit.nodes for name in (*graph.nodes[k].inputs, graph.nodes[k].output)}
    blocks = {name: lanes for name in read if layouts.get(name) == "blocked"}
    boxes, _ = BrickGrid.of_box(band.boxes[unit.nodes[-1]], unit.brick).sample()
    axis = swept_axis(unit.brick, unit.band)
    swept = sweep(graph, unit.nodes, boxes, unit.band[axis], axis, slices, blocks)
    inner = [graph.nodes[k].output for k in unit.nodes[:-1] if graph.nodes[k].output not in slices]
    extents = {name: buffer_extents(swept, name) for name in inner}
    return sum(aligned(stored_bytes(graph.types[n], extents[n], layouts[n], lanes)) for n in inner)


def _steps(band: BandPlan, unit: Subgraph) -> int:
    """Kernel calls of a unit in a band, about."""
    if unit.nodes[-1] not in band.boxes:
        return 0
    extents = band.boxes[unit.nodes[-1]].extents[0].tolist()
    bricks = math.prod(-(-extent // edge) for extent, edge in zip(extents, unit.brick, strict=True))
    times = math.prod(-(-a // b) for a, b in zip(unit.brick, unit.band, strict=True))
    return bricks * times * len(unit.members)


def _constants(plan: Plan) -> int:
    """Bytes of the constants as kernels read them; the weights themselves are among what the process has."""
    graph = plan.graph
    total = sum(array.nbytes for array in graph.constants.values())
    for k, name in plan.algorithms.items():
        node = graph.nodes[k]
        total += packed_bytes(graph, node, name, plan.device.lanes) - graph.types[node.inputs[1]].nbytes
    return total
