"""Chooses height of bands and number of strips: the least modelled time that fits the limit."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from brickrt.graph.errors import BrickError
from brickrt.plan.stream.stream_memory import Known, StreamMemory, project_stream
from brickrt.plan.stream.stream_plan import AXIS, StreamPlan, StreamPlanner

HEIGHTS = (128, 64, 32, 16, 8, 4, 2, 1)  # of bands, times the least that all tensors advance by
STRIPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
BAND_ROWS = 2.0  # rows in whose time a band begins and ends, about: rows are copied, and workers wait for each other
MIB = 2**20
SAMPLING = 4 * MIB  # by which all bands together may take more than those of a sample


@dataclass(frozen=True)
class MemoryLimit:
    """`limit` bytes of which the process has `runtime` already; `buffers` are those of readers and writers."""

    limit: int
    threads: int
    runtime: int
    buffers: int = 0


@dataclass(frozen=True, eq=False)
class Candidate:
    """A stream plan, or a sample of its strips, with its memory; `work` is the arithmetic it does, halos again, over
    that of the whole network."""

    plan: StreamPlan
    memory: StreamMemory
    work: float


class TooLittleMemory(BrickError):
    """No candidate is within the limit; `least` is the one that takes least."""

    def __init__(self, message: str, least: Candidate) -> None:
        super().__init__(message)
        self.least = least


def choose_bands(planner: StreamPlanner, slices: Collection[str], asked: MemoryLimit) -> Candidate:
    """The fastest candidate, by the model, whose memory is within the limit. Raises BrickError with the least memory
    that would do where none is."""
    known: Known = {}
    best: Candidate | None = None
    least: Candidate | None = None
    heights = _heights(planner)
    for strips in _strips(planner):
        tallest, smallest = _tallest(planner, slices, asked, heights, strips, known)
        if smallest is not None and (least is None or smallest.memory.total < least.memory.total):
            least = smallest
        if tallest is not None and (best is None or tallest.work < best.work):
            best = tallest
        if best is not None and best.plan.rows == heights[0]:
            break  # more strips only do more
    if best is not None:
        plan = planner.stream_plan(best.plan.rows, best.plan.strips)
        memory = project_stream(plan, slices, asked.threads, asked.runtime, asked.buffers)
        best = replace(best, plan=plan, memory=memory)
        if memory.total <= asked.limit:
            return best
        least = best  # a sample of its bands took less
    assert least is not None
    needed = -(-least.memory.total // MIB)
    raise TooLittleMemory(
        f"{asked.limit / MIB:.0f} MiB of memory are not enough: the least that would do is {needed} MiB, "
        f"of which {_largest(least.memory)}: raise --max-memory to {needed}MiB",
        least,
    )


def _largest(memory: StreamMemory) -> str:
    parts = {
        "the process itself": memory.runtime,
        "the weights": memory.constants,
        "rows kept between bands": memory.persistent,
        "a band": memory.arena,
    }
    name = max(parts, key=lambda part: parts[part])
    return f"{name} takes {parts[name] / MIB:.0f}"


def _tallest(
    planner: StreamPlanner,
    slices: Collection[str],
    asked: MemoryLimit,
    heights: list[int],
    strips: tuple[int, ...],
    known: Known,
) -> tuple[Candidate | None, Candidate | None]:
    """The first candidate of descending heights that fits, since shorter bands only do more; or else the shortest,
    which does not."""
    one = _candidate(planner, slices, asked, heights[-1], strips, known)
    if one.memory.total > asked.limit:
        return None, one
    fits, at = one, 0  # the tallest often fits
    low, high = 0, len(heights) - 1  # the first that fits is in [low, high]
    while low < high:
        one = _candidate(planner, slices, asked, heights[at], strips, known)
        if one.memory.total <= asked.limit:
            fits, high = one, at
        else:
            low = at + 1
        at = (low + high) // 2
    return fits, None


def _candidate(
    planner: StreamPlanner,
    slices: Collection[str],
    asked: MemoryLimit,
    rows: int,
    strips: tuple[int, ...],
    known: Known,
) -> Candidate:
    plan = planner.stream_plan(rows, strips, sample=True)
    memory = project_stream(plan, slices, asked.threads, asked.runtime, asked.buffers + SAMPLING, known)
    return Candidate(plan, memory, _work(planner, plan))


def _heights(planner: StreamPlanner) -> list[int]:
    """Heights of bands to try, tall ones first."""
    unit, tall = _unit(planner), planner.tall
    return list(dict.fromkeys(min(max(unit, height // unit * unit), tall) for height in HEIGHTS))


def _strips(planner: StreamPlanner) -> Iterator[tuple[int, ...]]:
    """Strips to try, whole rows first."""
    graph = planner.plan.graph
    outputs = [graph.types[name].shape for name in graph.outputs if name in planner.network.swept.level]
    behind = max((shape[AXIS + 1 :] for shape in outputs), key=len, default=())
    found = (_spread(parts, behind) for parts in (STRIPS if planner.may_cut else (1,)))
    yield from dict.fromkeys(strips for strips in found if strips is not None)


def _spread(parts: int, extents: tuple[int, ...]) -> tuple[int, ...] | None:
    """How many strips each axis is cut in: the longest piece is halved until there are enough."""
    strips = [1] * len(extents)
    while extents and parts > 1 and _count(strips) < parts:
        at = max(range(len(extents)), key=lambda axis: extents[axis] / strips[axis])
        strips[at] += 1
    fits = all(extent // count >= 32 or count == 1 for extent, count in zip(extents, strips, strict=True))
    return tuple(strips) if fits and (parts == 1 or _count(strips) >= parts) else None


def _count(strips: list[int]) -> int:
    total = 1
    for count in strips:
        total *= count
    return total


def _unit(planner: StreamPlanner) -> int:
    """Rows of a band in which every tensor advances by whole rows, where rows are powers of two apart."""
    graph, level = planner.plan.graph, planner.network.swept.level
    rows = [graph.types[name].shape[AXIS] for name in level if graph.types[name].rank > AXIS]
    least = min((extent for extent in rows if extent > 1), default=1)
    ratio = max(1, round(planner.tall / least))
    return 1 << (ratio - 1).bit_length() if ratio < planner.tall // 2 else 1


def _work(planner: StreamPlanner, plan: StreamPlan) -> float:
    """Arithmetic of all sweeps, with the rows that merged layers and strips compute again, over that of the network."""
    graph = planner.plan.graph
    elements: dict[int, float] = {}
    for one in plan.sweeps:
        computed: dict[int, float] = {}
        for read in one.schedule.reads:
            computed[read.k] = max(computed.get(read.k, 0.0), int(read.boxes.volumes.sum()) * one.times / one.share)
        for k, volume in computed.items():
            elements[k] = elements.get(k, 0.0) + volume
    flops = {k: float(graph.flops([graph.nodes[k]])) for k in elements}
    again = sum(flops[k] * volume / max(1, graph.out(graph.nodes[k]).size) for k, volume in elements.items())
    return again / max(1.0, sum(flops.values())) * (1 + BAND_ROWS / plan.rows)
