"""Chooses height of bands and number of strips: the least modelled time that fits the limit."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from brickrt.graph.errors import BrickError
from brickrt.plan.stream.band_storage import LONG, SHORT
from brickrt.plan.stream.stream_memory import Known, StreamMemory, project_stream
from brickrt.plan.stream.stream_plan import UNLIKE, StreamPlan, StreamPlanner
from brickrt.plan.stream.stream_time import modelled_us
from brickrt.plan.stream.strip_parts import strip_edges

HEIGHTS = (256, 192, 128, 96, 64, 48, 32, 24, 16, 8, 4, 2, 1)  # of bands: multiples of what all advance by
STRIPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
MOST_BANDS = 1024  # of networks of which no few bands stand for all: these take time to plan
COARSEST = 64  # rows to one of a tensor with which bands still advance
MIB = 2**20
BAND_FLOPS = 1e12  # of attention that a band may have, so that a run which is ended has little to do again
NEARLY = 1.05  # times what others take, up to which bands of another height may take less
LESS, IDLE = 0.99, 3  # no more strips are tried once so often in a row they take no less than this share
TRIES = 4  # plans made in full, of which a sample was within the limit
TABLES = 16 * MIB  # of tables that taller bands may save some of
SAMPLING = 4 * MIB  # by which all bands together may take more than those of a sample
Cut = tuple[int, tuple[int, ...], float]  # rows of a band, strips, and the share of rows that is saved
Full = Mapping[Cut, StreamMemory]


@dataclass(frozen=True)
class MemoryLimit:
    """`limit` bytes of which the process has `runtime` already; `buffers` are those of readers and writers."""

    limit: int
    threads: int
    runtime: int
    buffers: int = 0


@dataclass(frozen=True, eq=False)
class Candidate:
    """A stream plan, or a sample of its strips, with its memory and the modelled microseconds that it takes, if it is
    within the limit."""

    plan: StreamPlan
    memory: StreamMemory
    us: float


class TooLittleMemory(BrickError):
    """No candidate is within the limit; `least` is the one that takes least."""

    def __init__(self, message: str, least: Candidate) -> None:
        super().__init__(message)
        self.least = least


def choose_bands(planner: StreamPlanner, slices: Collection[str], asked: MemoryLimit, whole: bool = True) -> Candidate:
    """The fastest candidate, by the model, whose memory is within the limit; its plan has all bands where it is wanted
    `whole`, else those of a sample, as for who tells of it and does not run it. Raises BrickError with the least memory
    that would do where none is."""
    least: Candidate | None = None
    full: dict[Cut, StreamMemory] = {}
    for _ in range(TRIES):
        best, smallest = _search(planner, slices, asked, full)
        if best is None:
            least = smallest
            break
        plan = best.plan
        if whole:
            plan = planner.stream_plan(plan.rows, plan.strips, saved=plan.saved)
        memory = project_stream(plan, slices, asked.threads, asked.runtime, asked.buffers)
        best = replace(best, plan=plan, memory=memory)
        if memory.total <= asked.limit:
            return best
        full[plan.rows, plan.strips, plan.saved] = memory  # a sample of its bands took less
        least = min((one for one in (least, best) if one), key=lambda one: one.memory.total)
    assert least is not None
    needed = -(-least.memory.total // MIB)
    raise TooLittleMemory(
        f"{asked.limit / MIB:.0f} MiB of memory are not enough: the least that would do is {needed} MiB, "
        f"of which {_largest(least)}: raise --max-memory to {needed}MiB",
        least,
    )


def _search(
    planner: StreamPlanner, slices: Collection[str], asked: MemoryLimit, full: Full
) -> tuple[Candidate | None, Candidate | None]:
    """The fastest candidate that fits, and of those that do not the one that takes least; `full` has the memory of
    plans of which all bands were made. More strips take less memory and do more: once that no longer buys taller bands
    that make up for it, no others are tried."""
    best: Candidate | None = None
    least: Candidate | None = None
    found, gains = Known(), dict[tuple[int, int, float], Gain]()
    heights, idle = _heights(planner), 0
    numbers = list(_strips(planner))
    for at, strips in enumerate(numbers):
        near = heights.index(least.plan.rows) if least else len(heights) - 1
        if at and best is None:  # in whole rows a network often fits, and then no strips are tried
            planner.expect(numbers[at:])
        short, long = (
            _Candidates(planner, slices, asked, strips, saved, found, full, gains) for saved in (SHORT, LONG)
        )
        fits, smallest = _either(short, long, heights, near, bool(least and least.plan.saved == LONG))
        if fits is not None:
            if best is not None and fits.us >= best.us:
                break
            best = fits
            if best.plan.rows == heights[0]:
                break
        elif smallest is not None:
            idle = 0 if least is None or smallest.memory.total < LESS * least.memory.total else idle + 1
            least = min((one for one in (least, smallest) if one), key=lambda one: one.memory.total)
            following = numbers[at + 1 : at + 2]
            if idle == IDLE or (idle and following and _in_strips(smallest, following[0]) >= least.memory.total):
                break
    return best, least


def _in_strips(one: Candidate, strips: tuple[int, ...]) -> float:
    """About what the same bands take in more strips: each strip has tables, and rows that are as much shorter."""
    memory, more = one.memory, math.prod(strips) / max(1, math.prod(one.plan.strips))
    rows = memory.persistent - sum(one.plan.always.values()) + memory.arena
    return memory.total + (more - 1) * memory.tables - (1 - 1 / more) * rows


def _keeps_much(one: Candidate) -> bool:
    """Whether rows that are kept between bands take enough for another way of keeping them to be tried."""
    return one.memory.persistent - sum(one.plan.always.values()) > (1 - LESS) * one.memory.total


def _largest(least: Candidate) -> str:
    """What takes most of it."""
    memory, whole = least.memory, sum(least.plan.always.values())
    parts = {
        "the process itself takes": memory.runtime,
        "the weights take": memory.constants,
        "tensors that are needed whole take": whole,
        "rows kept between bands take": memory.persistent - whole,
        "a band takes": memory.arena,
    }
    name = max(parts, key=lambda part: parts[part])
    return f"{name} {parts[name] / MIB:.0f}"


@dataclass(frozen=True)
class Gain:
    """By how many times the tables and the arena of taller bands were as large, when they took no less."""

    tables: float
    arena: float


@dataclass(frozen=True)
class _Candidates:
    """Candidates of one number of strips and one way of keeping rows, by the height of their bands."""

    planner: StreamPlanner
    slices: Collection[str]
    asked: MemoryLimit
    strips: tuple[int, ...]
    saved: float
    known: Known
    full: Full
    gains: dict[tuple[int, int, float], Gain]
    made: dict[int, Candidate] = field(default_factory=dict)

    def of(self, rows: int) -> Candidate:
        """The candidate in bands of `rows` rows."""
        if rows not in self.made:
            asked, plan = self.asked, self.planner.stream_plan(rows, self.strips, sample=True, saved=self.saved)
            memory = self.full.get((rows, self.strips, self.saved)) or project_stream(
                plan, self.slices, asked.threads, asked.runtime, asked.buffers + SAMPLING, self.known
            )
            self.made[rows] = Candidate(plan, memory, modelled_us(plan) if memory.total <= asked.limit else math.inf)
        return self.made[rows]


def _either(
    short: _Candidates, long: _Candidates, heights: list[int], near: int, saved: bool
) -> tuple[Candidate | None, Candidate | None]:
    """The fastest candidate that fits, few rows saved or many, or else the one that takes least. Those with many rows
    `saved` are sought first where that took less in fewer strips; the others only where they may take less still."""
    fits, one = _tallest(long if saved else short, heights, near)
    known = fits or one
    assert known is not None
    at, others = heights.index(known.plan.rows), short if saved else long
    if fits is not None:
        worth = saved or (at > 0 and _keeps_much(fits))  # bands in which many rows are saved are faster if taller
        other, _ = _tallest(others, *((heights, at) if saved else (heights[:at], at - 1))) if worth else (None, None)
        return min((one for one in (fits, other) if one), key=lambda one: one.us), None
    if not _keeps_much(known) or others.of(known.plan.rows).memory.total > NEARLY * known.memory.total:
        return None, known
    fits, other = _tallest(others, *((heights[at:], 0) if saved else (heights[: at + 1], at)))
    return fits, min((one for one in (known, other) if one), key=lambda one: one.memory.total)


def _tallest(candidates: _Candidates, heights: list[int], near: int) -> tuple[Candidate | None, Candidate | None]:
    """The first candidate of descending heights that fits, since shorter bands only do more; or else the one that takes
    least, which does not, sought from number `near` on."""
    limit = candidates.asked.limit
    one, high = _least(candidates, heights, near)
    if one.memory.total > limit:
        return None, one
    candidates.planner.expect(())  # more strips are tried in few of these heights
    fits, at, low = one, 0, 0  # the tallest often fits; the first that fits is in [low, high]
    while low < high:
        one = candidates.of(heights[at])
        if one.memory.total <= limit:
            fits, high = one, at
        else:
            low = at + 1
        at = (low + high) // 2
    return fits, None


def _least(candidates: _Candidates, heights: list[int], near: int) -> tuple[Candidate, int]:
    """A candidate that fits, with its number, or the one that takes least, going from number `near` on to taller bands,
    or else to shorter ones, while they take less. Shorter bands hold less, but the shorter they are, the more run
    ahead, and each of these has tables: so the shortest take least unless tables are large."""
    at, one = near, candidates.of(heights[near])
    for step in (-1, 1):
        while one.memory.total > candidates.asked.limit and 0 <= at + step < len(heights):
            if step < 0 and not _may_take_less(one, heights[at + step], candidates):
                break
            other = candidates.of(heights[at + step])
            if other.memory.total >= one.memory.total:
                if step < 0 and one.memory.tables and one.memory.arena:
                    gain = Gain(other.memory.tables / one.memory.tables, other.memory.arena / one.memory.arena)
                    candidates.gains[one.plan.rows, other.plan.rows, candidates.saved] = gain
                break
            at, one = at + step, other
        if at != near:
            break
    return one, at


def _may_take_less(one: Candidate, rows: int, candidates: _Candidates) -> bool:
    """Whether taller bands, of so many `rows`, may take less. The arena grows as they do; tables are fewer of bands
    that run ahead or are like no others: of bands twice as tall half. Where tensors do not advance in every band, rows
    that are kept may be fewer too. What they saved in fewer strips is known."""
    planner, gain = candidates.planner, candidates.gains.get((one.plan.rows, rows, candidates.saved))
    if gain is not None:
        return (1 - gain.tables) * one.memory.tables > (gain.arena - 1) * one.memory.arena
    if one.memory.tables <= TABLES or planner.uneven or one.plan.rows < planner.coarsest:
        return one.memory.tables > TABLES
    sweeps = one.plan.sweeps
    usual = UNLIKE * sum(sweep.times for sweep in sweeps) / sum(sweep.distinct * sweep.times for sweep in sweeps)
    taller = rows / one.plan.rows
    return (1 - usual) * one.memory.tables * (1 - 1 / taller) > one.memory.arena * (taller - 1)


def _heights(planner: StreamPlanner) -> list[int]:
    """Heights of bands to try, tall ones first."""
    unit, tall = _unit(planner), planner.tall
    flops = sum(one.flops(planner.plan.graph) for one in planner.attentions)
    most = int(BAND_FLOPS * tall / max(BAND_FLOPS, flops))
    least = -(-tall // MOST_BANDS) if planner.uneven else 1
    unit = -(-least // unit) * unit
    return list(dict.fromkeys(min(max(unit, min(height, most) // unit * unit), tall) for height in HEIGHTS))


def _strips(planner: StreamPlanner) -> Iterator[tuple[int, ...]]:
    """Strips to try, whole rows first, each cut once."""
    graph = planner.plan.graph
    swept = planner.network.swept
    behind = max(
        (graph.types[name].shape[swept.axes.of(name) + 1 :] for name in graph.outputs if name in swept.level),
        key=len,
        default=(),
    )
    found = (_spread(parts, behind) for parts in (STRIPS if planner.may_cut else (1,)))
    cuts: dict[tuple[int, ...], tuple[int, ...]] = {}
    for strips in found:
        if strips is not None:
            cuts.setdefault(strip_edges(graph, swept, strips), strips)
    yield from cuts.values()


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
    """Rows of a band in which every tensor advances by whole rows, where rows are powers of two apart, but for those
    that have very few, as sums over rows have."""
    graph, swept = planner.plan.graph, planner.network.swept
    rows = [graph.types[name].shape[swept.axes.of(name)] for name in swept.level]
    least = min((extent for extent in rows if extent > 1 and extent * COARSEST >= planner.tall), default=1)
    ratio = max(1, round(planner.tall / least))
    return 1 << (ratio - 1).bit_length() if ratio < planner.tall // 2 else 1
