"""How a model will run in a stated amount of memory, known before anything is lowered."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from brickrt.graph.builder import COUNTABLE_BYTES
from brickrt.graph.errors import BrickError, last_resort
from brickrt.graph.ir import Graph, Node
from brickrt.graph.onnx_import.check_inputs import check_input_types
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.graph.room import available_bytes
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import first_stage
from brickrt.graph.time_budget import not_counted, preparing
from brickrt.graph.uncollected import uncollected
from brickrt.ops.expr import arg
from brickrt.ops.operators.map import Map
from brickrt.ops.types import TensorType
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.geometry.arena_packing import Lifetime, arena_size
from brickrt.plan.lean_weights import transformed_bytes, with_transforms
from brickrt.plan.plan import Plan
from brickrt.plan.stream.band_storage import LARGE_SAVED_SHARE, SMALL_SAVED_SHARE, stored_bytes
from brickrt.plan.stream.choose_bands import MIB, Candidate, MemoryLimit, TooLittleMemory, choose_bands
from brickrt.plan.stream.row_axes import RowAxes
from brickrt.plan.stream.stream_memory import project_stream
from brickrt.plan.stream.stream_plan import StreamPlanner
from brickrt.plan.stream.stream_time import arithmetic, modelled_us
from brickrt.runtime.cpu.memory import give_back_freed
from brickrt.runtime.files.scratch import SCRATCH_BUFFERS
from brickrt.runtime.lowering.arena import view_aliases
from brickrt.runtime.lowering.inplace_slices import find_inplace_slices
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.stream.resident import peak_bytes, resident_bytes
from brickrt.runtime.stream.spill_planning import with_spills
from brickrt.runtime.stream.stream_report import Spilling, StreamCut

FREE_SHARE = 0.8  # of the memory that is free, which a run takes where no limit is given
RESIDENT_STEP_BYTES = 16 * MIB  # what a process takes is rounded up to these, so that two of one kind need the same
# More than `brickrt run` has before it plans (Linux: 108 MiB by CPython 3.11 with NumPy 2.4; others may take more),
# beside the weights of the model and of what is planned: `brickrt plan` and `brickrt run` then name the same amount.
COMMAND_BYTES = 126 * MIB
# What a run imports, at the latest once it is planned, and bytes that a process grows by then.
IMPORTED_BYTES = {"brickrt.runtime.cpu.program": 6 * MIB, "brickrt.runtime.stream.stream_job": 5 * MIB}
LAYERS, LONGEST = 256, 6.0  # for so many layers bands may be planned as long again, up to so many times as long in all
WRITER_BYTES = 16 * MIB  # of each output, beside the rows of a band
RESIDENT_NOISE_BYTES = MIB  # by which two processes that did the same differ
TRANSFORMED_SHARES = 0.25, 0.0625, 0.0  # of what transformed weights take beyond the weights: tried in turn, if that is
LEAST_TRANSFORMED_BYTES = 16 * MIB  # or more, where all of it leaves no room for bands within the limit
MOST_REPEATED_WORK = 1.2  # times the network's arithmetic that bands may have for no others to be tried


@dataclass(frozen=True, eq=False)
class PlannedStream:
    """A plan and how it is cut, for `limit` bytes; planning took `plan_s` seconds. Transformed weights take at most
    `transformed` bytes beyond the weights, as many as are fastest where it is None."""

    plan: Plan
    candidate: Candidate
    limit: int
    plan_s: float
    spilling: Spilling | None = None
    transformed: int | None = None

    @property
    def cut(self) -> StreamCut:
        """The heights of bands, the strips, what is spilled, and what transformed weights may take."""
        plan = self.candidate.plan
        return StreamCut(plan.rows, plan.strips, plan.spilled, self.transformed)


def plan_stream(
    pipeline: Pipeline,
    source: SourceGraph,
    types: Mapping[str, TensorType],
    max_memory: int | None = None,
    cut: StreamCut | None = None,
    reading: Callable[[RowAxes], int] | None = None,
    spill_into: Path | None = None,
    sharing: int = 1,
    whole: bool = True,
    had_before: int | None = None,
) -> PlannedStream:
    """Plans for at most `max_memory` resident bytes, 80 % of what is free where it is None; a `cut` of an earlier run
    is taken as it is. `reading` tells the bytes that readers hold, once it is known along which axes rows lie. Tensors
    are spilled into the folder `spill_into` where that takes less time, by the speed of its disk, which so many
    processes are `sharing`; none without a folder. A plan that is not `whole` has a sample of its bands: to be told.
    Where memory is scarce fewer layers have transformed weights, those that gain least for the bytes. Who does not
    use the model again tells the most bytes that the process `had_before` it was loaded: it gives up weights that the
    plan does not read as they are, such as those of batch norms, and what it took until then counts.

    Raises BrickError with the least memory that would do where the limit is below, and naming the node where a network
    is not run band by band."""
    began = time.perf_counter()
    if pipeline.engine.spec.kind != "cpu":
        raise BrickError(f"device '{pipeline.engine.spec.kind}' runs no bands: use device cpu")
    check_input_types(source, types)
    with uncollected():
        plan = pipeline.plan(whole_graph(source, types, pipeline.engine.spec), measured=False)
    if had_before is not None:
        _give_up(source, plan.graph)
    runtime = _settled_bytes(source, plan.graph)
    limit = max_memory or runtime + int(FREE_SHARE * available_bytes())
    search = _CutSearch(limit, pipeline.threads, runtime, reading, spill_into, sharing, whole)
    may_change = pipeline.saved is None and not pipeline.options.exact  # which has the same bits as in core
    counted = nullcontext() if had_before is None else _counting_planning(limit, had_before)
    with last_resort(lambda: "planning bands"), uncollected(), counted:
        found = search.as_cut(plan, cut) if cut else _with_transforms_that_pay(search, plan, may_change)
    return replace(found, plan_s=time.perf_counter() - began)


@contextmanager
def _counting_planning(limit: int, had_before: int) -> Iterator[None]:
    """Bands are planned. The process may have taken more than they do to load and to plan its model, as folding large
    constants does: raises BrickError with that where the limit is below."""
    try:
        yield
    except TooLittleMemory as refusal:
        _refuse_peak(max(limit, had_before, refusal.least.memory.total), limit)
        raise
    _refuse_peak(max(limit, had_before), limit)


def _refuse_peak(most: int, limit: int) -> None:
    """Raises BrickError, which names the limit, where the process has had more than `most`."""
    peak = peak_bytes()
    if peak > most:
        needed = _rounded(peak + RESIDENT_STEP_BYTES // 2) // MIB
        raise BrickError(
            f"{limit / MIB:.0f} MiB of memory are not enough: to load the model and to plan it took "
            f"{peak / MIB:.0f} MiB: raise --max-memory to {needed}MiB"
        )


@dataclass(frozen=True)
class _CutSearch:
    """What bands are looked for: see `plan_stream`; the process has `runtime` bytes."""

    limit: int
    threads: int
    runtime: int
    reading: Callable[[RowAxes], int] | None
    spill_into: Path | None
    sharing: int
    whole: bool

    def of(self, plan: Plan, transformed: int | None = None) -> PlannedStream:
        """The fastest bands of a plan within the limit. Raises `TooLittleMemory` where none are."""
        with preparing(_longer(plan)):
            planner, slices, asked = self._asked(plan)
            tried, spilling = with_spills(planner, self.spill_into, self.threads, self.sharing)
            candidate = _first_that_fits(tried, slices, asked, self.whole)
        if spilling is not None and tried[0].network.spilled and not candidate.plan.spilled:
            spilling = replace(spilling, why="takes more memory than is allowed")
        return PlannedStream(plan, candidate, self.limit, 0.0, spilling, transformed)

    def as_cut(self, plan: Plan, cut: StreamCut) -> PlannedStream:
        """The bands of an earlier run. Raises BrickError where they take more memory than is allowed."""
        plan = plan if cut.transformed is None else with_transforms(plan, cut.transformed)
        with preparing(_longer(plan)):
            planner, slices, asked = self._asked(plan)
            candidate = _as_cut(planner, slices, asked, cut)
        return PlannedStream(plan, candidate, self.limit, 0.0, None, cut.transformed)

    def _asked(self, plan: Plan) -> tuple[StreamPlanner, Collection[str], MemoryLimit]:
        slices, views = find_inplace_slices(plan), view_aliases(plan)
        planner = StreamPlanner.of(plan, slices, views)
        read = self.reading(planner.network.swept.axes) if self.reading else 0
        return planner, slices, _memory_limit(planner, self.limit, self.threads, self.runtime, read)


def _with_transforms_that_pay(search: _CutSearch, plan: Plan, may_change: bool) -> PlannedStream:
    """The fastest bands within the limit, of plans that transform fewer and fewer weights as long as too little memory
    is left to bands for them to compute all rows once. Raises the refusal with the least memory where none fit."""
    found, refusals = list[PlannedStream](), list[TooLittleMemory]()
    added = transformed_bytes(plan)
    shares = TRANSFORMED_SHARES if may_change and added >= LEAST_TRANSFORMED_BYTES else ()
    for most in (None, *(int(share * added) for share in shares)):
        try:
            found.append(search.of(plan if most is None else with_transforms(plan, most), most))
        except TooLittleMemory as refusal:
            refusals.append(refusal)
            continue
        if arithmetic(found[-1].candidate.plan) < MOST_REPEATED_WORK:
            break
    if not found:
        raise min(refusals, key=lambda refusal: refusal.least.memory.total)
    return min(found, key=lambda one: one.candidate.us)


def _longer(plan: Plan) -> float:
    """How many times as long as a part of a model its bands may be planned, which are planned again and again."""
    return min(LONGEST, 1 + len(plan.subgraphs) / LAYERS)


def _first_that_fits(
    planners: Sequence[StreamPlanner], slices: Collection[str], asked: MemoryLimit, whole: bool
) -> Candidate:
    """What is chosen of the first planner that has a candidate within the limit. Raises the refusal with the least
    memory where none has."""
    refusals: list[TooLittleMemory] = []
    for planner in planners:
        try:
            return _chosen(planner, slices, _with_buffers(planner, asked), whole)
        except TooLittleMemory as refusal:
            refusals.append(refusal)
    raise min(refusals, key=lambda refusal: refusal.least.memory.total)


def _with_buffers(planner: StreamPlanner, asked: MemoryLimit) -> MemoryLimit:
    """What is asked for, with the buffers of scratch files."""
    return replace(asked, buffers=asked.buffers + SCRATCH_BUFFERS) if planner.network.spilled else asked


def _chosen(planner: StreamPlanner, slices: Collection[str], asked: MemoryLimit, whole: bool) -> Candidate:
    """The fastest candidate within the limit. A refusal names the least for a process a little larger, and what is
    enough for one a little smaller is taken: so the least is enough for the next process, and less is not."""
    try:
        return choose_bands(
            planner, slices, replace(asked, runtime=_rounded(asked.runtime + RESIDENT_NOISE_BYTES)), whole
        )
    except TooLittleMemory as refusal:
        least = refusal.least
        memory = replace(least.memory, runtime=max(asked.runtime, _rounded(asked.runtime - RESIDENT_NOISE_BYTES)))
        if memory.total > asked.limit:
            raise
        plan = least.plan
        if whole:
            with not_counted():
                plan = planner.stream_plan(plan.rows, plan.strips, saved=plan.saved)
        return replace(least, plan=plan, memory=memory)


def _settled_bytes(source: SourceGraph, graph: Graph) -> int:
    """What is resident without what was freed, and with what a run imports. At least what `brickrt run` has
    with such weights, so that `brickrt plan`, which loads less, names the same least memory."""
    give_back_freed()
    arrays = (*source.initializers.values(), *graph.constants.values())
    weights = sum({_memory_of(array): array.nbytes for array in arrays}.values())
    later = sum(nbytes for module, nbytes in IMPORTED_BYTES.items() if module not in sys.modules)
    return max(resident_bytes() + later, _rounded(COMMAND_BYTES + weights) - RESIDENT_NOISE_BYTES)


def _give_up(source: SourceGraph, graph: Graph) -> None:
    """Drops the arrays of a model that a graph does not have."""
    kept = set(map(_memory_of, graph.constants.values()))
    for name in [name for name, array in source.initializers.items() if _memory_of(array) not in kept]:
        del source.initializers[name]


def _memory_of(array: np.ndarray) -> int:
    """Where the elements of an array lie: views of one memory have one such number."""
    return int(array.__array_interface__["data"][0])


def _rounded(resident: int) -> int:
    return -(-resident // RESIDENT_STEP_BYTES) * RESIDENT_STEP_BYTES


def _as_cut(planner: StreamPlanner, slices: Collection[str], asked: MemoryLimit, cut: StreamCut) -> Candidate:
    """See `_CutSearch.as_cut`."""
    if not set(cut.spilled) <= set(planner.may_spill):
        raise BrickError("the model is another one than when this run was begun: leave out --resume to start again")
    planner, least = planner.spilling(cut.spilled), 0
    asked = _with_buffers(planner, asked)
    for saved in (SMALL_SAVED_SHARE, LARGE_SAVED_SHARE):
        sample = planner.stream_plan(cut.rows, cut.strips, sample=True, saved=saved)
        memory = project_stream(
            sample, slices, asked.threads, asked.runtime, asked.buffers_of(sample), limit=asked.limit
        )
        if memory.total <= asked.limit:
            return Candidate(planner.stream_plan(cut.rows, cut.strips, saved=saved), memory, modelled_us(sample))
        least = min(memory.total, least or memory.total)
    raise BrickError(
        f"{asked.limit / MIB:.0f} MiB of memory are not enough for the bands that this run was begun with: raise "
        f"--max-memory to {-(-least // MIB)}MiB, or leave out --resume to start again"
    )


def whole_graph(source: SourceGraph, types: Mapping[str, TensorType], spec: DeviceSpec) -> Graph:
    """The model as one graph of the brick operators that a device has, in which outputs that are other tensors too, or
    known before the run, are copies of them. Raises BrickError where it is none."""
    with preparing():
        special = specialize(
            first_stage(source, frozenset(types)), types, {}, spec.integer_products, spec.cpu_operators, COUNTABLE_BYTES
        )
    if special.need_values:
        names = ", ".join(map(repr, sorted(special.need_values)))
        raise BrickError(f"shapes depend on the values of {names}: such a network is not run band by band")
    if special.rest or special.host_nodes:
        names = ", ".join(f"'{node.name}' ({node.op_type})" for node in special.host_nodes[:4])
        raise BrickError(f"nodes {names} run on the host: a network with them is not run band by band")
    known = {name: np.asarray(special.known[name]) for name in source.outputs if name in special.known}
    if odd := [name for name, array in known.items() if not (array.ndim and array.size) or array.dtype == object]:
        names = ", ".join(map(repr, sorted(odd)))
        raise BrickError(f"outputs {names} are known before the run, and have no rows: leave them out of the model")
    return _with_copies(special.graph, special.same, known, tuple(source.outputs))


def _with_copies(
    graph: Graph, same: Mapping[str, str], known: Mapping[str, np.ndarray], outputs: tuple[str, ...]
) -> Graph:
    """The graph with a tensor of its own for each output that is another tensor too, or known before the run."""
    if not (same or known):
        return graph
    constants = {f"{name}/known": array for name, array in known.items()}
    types = graph.types | {name: TensorType(array.shape, array.dtype) for name, array in constants.items()}
    others = {**same, **{name: f"{name}/known" for name in known}}
    types |= {name: types[other] for name, other in others.items()}
    copies = [Node(f"{name}/copy", Map(arg(0, types[name].dtype)), (other,), name) for name, other in others.items()]
    nodes, constants = (*graph.nodes, *copies), {**graph.constants, **constants}
    return replace(graph, nodes=nodes, constants=constants, types=types, outputs=outputs).verify()


def in_core_bytes(plan: Plan) -> int:
    """About what a run takes that holds inputs, outputs and everything stored between subgraphs whole."""
    graph, slices, views = plan.graph, find_inplace_slices(plan), view_aliases(plan)
    io = {*graph.inputs, *graph.outputs}
    users: dict[str, list[int]] = {}
    for s, unit in enumerate(plan.subgraphs):
        inner = {graph.nodes[k].output for k in unit.nodes[:-1]} if unit.strategy == "padded" else set()
        for k in unit.members:
            for name in (*graph.nodes[k].inputs, graph.nodes[k].output):
                if name not in inner | io and name not in graph.constants:
                    users.setdefault(name, []).append(s)
    sizes = {
        n: 0
        if n in slices or n in views
        else stored_bytes(graph.types[n], graph.types[n].shape, plan.layouts[n], lanes)
        for lanes in (plan.device.lanes,)
        for n in users
    }
    lives = [Lifetime(name, sizes[name], at[0], at[-1], tuple(dict.fromkeys(at))) for name, at in users.items()]
    constants = sum(array.nbytes for array in graph.constants.values())
    return arena_size(lives) + sum(graph.types[name].nbytes for name in io) + constants


def _memory_limit(planner: StreamPlanner, limit: int, threads: int, runtime: int, reading: int) -> MemoryLimit:
    """The limit, with what readers hold, and writers may: a band's rows in another order and type, about."""
    outputs = [planner.plan.graph.types[name] for name in planner.plan.graph.outputs]
    per_row = sum(kind.nbytes for kind in outputs) / max(1, planner.tall)
    return MemoryLimit(limit, threads, runtime, WRITER_BYTES * len(outputs) + reading, per_row)
