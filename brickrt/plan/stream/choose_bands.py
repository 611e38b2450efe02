"""Chooses height of bands and number of strips: the least modelled time that fits the limit."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from brickrt.graph.errors import BrickError
from brickrt.graph.time_budget import not_counted
from brickrt.plan.stream.band_storage import LARGE_SAVED_SHARE, SMALL_SAVED_SHARE
from brickrt.plan.stream.stream_memory import Known, StreamMemory, project_stream, schedule_bytes
from brickrt.plan.stream.stream_plan import StreamPlan, StreamPlanner
from brickrt.plan.stream.stream_time import modelled_us
from brickrt.plan.stream.strip_parts import strip_edges

HEIGHTS = (256, 192, 128, 96, 64, 48, 32, 24, 16, 8, 4, 2, 1)  # of bands: multiples of what all advance by
SHORT_ROW = 1024  # pixels of a row, of which bands have more rows where they have fewer: a signal's has one
STRIPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
MOST_BANDS = 1024  # of networks of which no few bands stand for all: these take time to plan
COARSEST = 64  # rows to one of a tensor with which bands still advance
MIB = 2**20
BAND_FLOPS = 1e12  # of attention that a band may have, so that a run which is ended has little to do again
FEWER_STRIPS_SHARE = 0.99  # of what more strips took, that fewer must take for still fewer to be tried
AT_LAST = 2  # numbers of strips that are looked at where none fits
KEPT_ROWS_SHARE = 0.01  # of all memory, that rows which are kept take where another way of keeping them is tried
MOST_FULL_PLANS = 4  # of which a sample was within the limit
SAMPLING_BYTES = 4 * MIB  # by which all bands together may take more than those of a sample
Cut = tuple[int, tuple[int, ...], float]  # rows of a band, strips, and the share of rows that is saved
Full = Mapping[Cut, StreamMemory]


@dataclass(frozen=True)
class MemoryLimit:
    """`limit` bytes of which the process has `runtime` already; `buffers` are those of readers and writers, which have
    `row_bytes` more for each row of a band."""

    limit: int
    threads: int
    runtime: int
    buffers: int = 0
    row_bytes: float = 0.0

    def buffers_of(self, plan: StreamPlan) -> int:
        """Bytes of readers and writers of a plan's bands."""
        return self.buffers + math.ceil(self.row_bytes * plan.rows)


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
    refused: list[Candidate] = []
    full: dict[Cut, StreamMemory] = {}
    for _ in range(MOST_FULL_PLANS):
        best, smallest = _search(planner, slices, asked, full)
        if best is None:
            refused.append(smallest)
            break
        plan = best.plan
        with not_counted():  # as long as it takes for the bands of which there is room for the schedules
            if whole:
                plan = planner.stream_plan(plan.rows, plan.strips, saved=plan.saved)
            memory = project_stream(
                plan, slices, asked.threads, asked.runtime, asked.buffers_of(plan), limit=asked.limit
            )
        best = replace(best, plan=plan, memory=memory)
        if memory.total <= asked.limit:
            return best
        full[plan.rows, plan.strips, plan.saved] = memory  # a sample of its bands took less
        refused.append(best)
    least = min(refused, key=_total)
    needed = -(-least.memory.total // MIB)
    raise TooLittleMemory(
        f"{asked.limit / MIB:.0f} MiB of memory are not enough: the least that would do is {needed} MiB, "
        f"of which {_largest(least)}: raise --max-memory to {needed}MiB",
        least,
    )


def _search(
    planner: StreamPlanner, slices: Collection[str], asked: MemoryLimit, full: Full
) -> tuple[Candidate | None, Candidate]:
    """The fastest candidate that fits, if any does, and of those that do not the one that takes least; `full` has the
    memory of plans of which all bands were made. More strips take less memory and do more: once that no longer buys
    taller bands that make up for it, no others are tried. Where not even the most strips fit, fewer are tried as long
    as they take less."""
    search = _BandSearch(planner, slices, asked, full, _heights(planner))
    first, *others = _strips(planner)
    best, least = search.of(first)
    if best is None and others:
        planner.expect(others[: -AT_LAST - 1 : -1])
        fits, before = search.of(others[-1])
        if fits is None:
            return _going_back(search, others[:-1], min(least, before, key=_total), before)
        planner.expect(others)
    for strips in others if best is None or best.plan.rows < search.heights[0] else ():
        fits, _ = search.of(strips)
        if fits is not None and best is not None and fits.us >= best.us:
            break
        best = fits or best
        if best is not None and best.plan.rows == search.heights[0]:
            break
    return best, least


def _going_back(
    search: _BandSearch, numbers: list[tuple[int, ...]], least: Candidate, before: Candidate
) -> tuple[Candidate | None, Candidate]:
    """The same for ever fewer strips, as long as these take clearly less than those `before`."""
    for strips in reversed(numbers):
        fits, smallest = search.of(strips)
        if fits is not None or smallest.memory.total >= FEWER_STRIPS_SHARE * before.memory.total:
            return fits, min(least, smallest, key=_total)
        before, least = smallest, min(least, smallest, key=_total)
    return None, least


def _total(one: Candidate) -> int:
    return one.memory.total


def _keeps_much(one: Candidate) -> bool:
    """Whether rows that are kept between bands take enough for another way of keeping them to be tried."""
    return one.memory.persistent - one.plan.whole.nbytes > KEPT_ROWS_SHARE * one.memory.total


def _largest(least: Candidate) -> str:
    """What takes most of it."""
    memory, whole = least.memory, least.plan.whole.nbytes
    parts = {
        "the process itself takes": memory.runtime,
        "the weights take": memory.constants,
        "tensors that are needed whole take": whole,
        "rows kept between bands take": memory.persistent - whole,
        "a band takes": memory.arena,
        "tables take": memory.tables,
    }
    name = max(parts, key=lambda part: parts[part])
    return f"{name} {parts[name] / MIB:.0f}"


@dataclass(frozen=True)
class _BandSearch:
    """Looks for candidates within the limit, in bands of these heights, tall ones first."""

    planner: StreamPlanner
    slices: Collection[str]
    asked: MemoryLimit
    full: Full
    heights: Sequence[int]
    known: Known = field(default_factory=Known)
    made: dict[Cut, Candidate] = field(default_factory=dict)

    def candidate(self, cut: Cut) -> Candidate:
        """What a cut takes."""
        if cut not in self.made:
            (rows, strips, saved), asked = cut, self.asked
            plan = self.planner.stream_plan(rows, strips, sample=True, saved=saved)
            memory = self.full.get(cut) or project_stream(
                plan,
                self.slices,
                asked.threads,
                asked.runtime,
                asked.buffers_of(plan) + SAMPLING_BYTES,
                self.known,
                asked.limit,
            )
            self.made[cut] = Candidate(plan, memory, modelled_us(plan) if memory.total <= asked.limit else math.inf)
        return self.made[cut]

    def of(self, strips: tuple[int, ...]) -> tuple[Candidate | None, Candidate]:
        """The fastest candidate of so many strips that fits, if any does, few rows saved or many, and one that takes
        least."""
        fits, least = self.tallest(strips, SMALL_SAVED_SHARE, self.heights)
        if not _keeps_much(least):
            return fits, least
        if fits is None:
            fits, other = self.tallest(
                strips, LARGE_SAVED_SHARE, self.heights[: self.heights.index(least.plan.rows) + 1]
            )
            return fits, min(least, other, key=_total)
        taller = self.heights[: self.heights.index(fits.plan.rows)]
        # Where many rows are saved, taller is faster.
        long = self.tallest(strips, LARGE_SAVED_SHARE, taller)[0] if taller else None
        return min((one for one in (fits, long) if one), key=lambda one: one.us), least

    def tallest(
        self, strips: tuple[int, ...], saved: float, heights: Sequence[int]
    ) -> tuple[Candidate | None, Candidate]:
        """The candidate in the tallest bands that fits, if any does, since shorter ones only do more; and the one that
        takes least."""
        limit = self.asked.limit
        fits = least = self.least(strips, saved, heights)
        if least.memory.total > limit:
            return None, least
        heights = heights[: heights.index(least.plan.rows) + 1]
        self.planner.expect(())  # more strips are tried in few of these heights
        at, low, high = 0, 0, len(heights) - 1  # the tallest often fits; the first that fits is in [low, high]
        while low < high:
            one = self.candidate((heights[at], strips, saved))
            if one.memory.total <= limit:
                fits, high = one, at
            else:
                low = at + 1
            at = (low + high) // 2
        return fits, least

    def least(self, strips: tuple[int, ...], saved: float, heights: Sequence[int]) -> Candidate:
        """The candidate that takes least, or the shortest that fits. Shorter bands hold less, but of thousands of them
        a deep network's schedule takes more: as their number does, while what they hold grows with their height."""
        one = self.candidate((heights[-1], strips, saved))
        schedule, rest = schedule_bytes(one.plan), one.memory.arena + one.memory.tables
        if one.memory.total <= self.asked.limit or 2 * schedule < rest or not schedule:
            return one
        taller = one.plan.rows * math.sqrt(schedule / max(1, rest - schedule))
        at = min(heights, key=lambda rows: abs(math.log(rows / taller)))
        return min(one, self.candidate((at, strips, saved)), key=_total)


def _heights(planner: StreamPlanner) -> list[int]:
    """Heights of bands to try, tall ones first."""
    unit, tall = _unit(planner), planner.tall
    flops = sum(one.flops(planner.plan.graph) for one in planner.attentions)
    most = int(BAND_FLOPS * tall / max(BAND_FLOPS, flops))
    least = -(-tall // MOST_BANDS) if planner.uneven else 1
    unit = -(-least // unit) * unit
    more = 1 << max(1, SHORT_ROW // max(1, _row_pixels(planner))).bit_length() - 1
    heights = [*(height * more for height in HEIGHTS), *(height for height in HEIGHTS if height < more)]
    return list(dict.fromkeys(min(max(unit, min(height, most) // unit * unit), tall) for height in heights))


def _row_pixels(planner: StreamPlanner) -> int:
    """Pixels of a row of the widest input or output."""
    graph, swept = planner.plan.graph, planner.network.swept
    ends = [name for name in (*graph.inputs, *graph.outputs) if name in swept.level]
    return max((math.prod(graph.types[name].shape[swept.axes.of(name) + 1 :]) for name in ends), default=1)


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
    while extents and parts > 1 and math.prod(strips) < parts:
        at = max(range(len(extents)), key=lambda axis: extents[axis] / strips[axis])
        strips[at] += 1
    fits = all(extent // count >= 32 or count == 1 for extent, count in zip(extents, strips, strict=True))
    return tuple(strips) if fits and (parts == 1 or math.prod(strips) >= parts) else None


def _unit(planner: StreamPlanner) -> int:
    """Rows of a band in which every tensor advances by whole rows, where rows are powers of two apart, but for those
    that have very few, as sums over rows have."""
    graph, swept = planner.plan.graph, planner.network.swept
    rows = [graph.types[name].shape[swept.axes.of(name)] for name in swept.level]
    least = min((extent for extent in rows if extent > 1 and extent * COARSEST >= planner.tall), default=1)
    ratio = max(1, round(planner.tall / least))
    return 1 << (ratio - 1).bit_length() if ratio < planner.tall // 2 else 1
