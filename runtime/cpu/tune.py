"""Plans that the processor itself chooses, once per network: what the cost model proposes is run and timed.

Each variant of the plan runs as a program of the whole network, in turns with the plan as modelled, so that operands
are as cold or warm as in use and a busy machine slows both. How long each subgraph took in it is known from the records
of its tasks. Of these a plan is put together; then whole runs decide between it and those it was put together from.
Two programs are in memory at a time (WELDER proposes and measures likewise).
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from brickrt.graph.allowance import held_inside
from brickrt.graph.ir import Graph
from brickrt.plan.plan import Plan, with_subgraphs
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.program_protocol import Program
from brickrt.runtime.progress import KernelProgress, Progress
from brickrt.runtime.tuning.known_plans import measured_name
from brickrt.runtime.tuning.measured_choices import MeasuredChoices
from brickrt.runtime.tuning.parts import FAILURES, decision, same
from brickrt.runtime.tuning.report import TriedPlan, TuningReport
from brickrt.runtime.tuning.timed_program import Sample, TimedProgram
from brickrt.runtime.tuning.variants import LAYERS, variants

TRYING_SHARE = 0.75  # of the seconds, in which variants are tried; the rest is for whole runs that decide
VARIANT_TURNS = (5, 25)  # fewest and most
DECIDING_TURNS = (9, 60)  # the same of whole runs that decide
TURNS_SHARES = (0.03, 0.1)  # of the seconds, for each of the two
FASTER_SHARE = 0.99  # of the time as modelled, that another plan may take to be chosen
AS_MODELLED = "as modelled"
FASTEST_PARTS = "the fastest parts of all"

Build = Callable[[Plan, KernelProgress], Program]
Sampler = Callable[[Program], Callable[[], Sample]]
Turns = Sequence[tuple[Sample, Sample]]


class OutOfTime(Exception):
    """The seconds that tuning may take are over."""


@dataclass
class Tuner:
    """See `plan_cache.Tune`. `build(plan, progress)` makes programs; `seconds` is what all calls together may take, the
    program of the plan as modelled aside; 0 tunes nothing. With `again`, what was tuned before is tuned anew.
    `progress` is told of seconds. `reports` has an entry for each graph that was tuned."""

    build: Build
    seconds: float
    again: bool = False
    progress: Progress | None = None
    sampler: Sampler = lambda program: TimedProgram(program).sample
    clock: Callable[[], float] = time.perf_counter
    reports: list[TuningReport] = field(default_factory=list)

    @property
    def name(self) -> str:
        """See `plan_cache.Tune`."""
        return measured_name()

    def __call__(self, graph: Graph, plan: Plan) -> tuple[Subgraph, ...] | None:
        """The subgraphs of the plan, or faster ones; None where no time is left to measure any."""
        left = self.seconds - sum(report.seconds for report in self.reports)
        if left <= 0:
            return None
        try:
            decided, report = _Trials(self, plan, left).best()
        except OutOfTime:
            return None
        except FAILURES as e:  # not even the plan as it is has room, say
            print(f"brickrt: the plan is taken as modelled, since it could not be measured: {e}", file=sys.stderr)
            return None
        self.reports.append(report)
        return decided


@dataclass(frozen=True)
class TimedVariant:
    """A plan that ran in turns with that as modelled. `ratio` is its time over that one's; `surely` says whether it was
    faster in more of the turns than chance would have it. `parts` has the times of its subgraphs, in runs of that one,
    float64 [subgraphs]."""

    name: str
    subgraphs: tuple[Subgraph, ...]
    ratio: float
    surely: bool
    parts: np.ndarray


class _Trials:
    """The trials of one plan, in so many seconds."""

    def __init__(self, tuner: Tuner, plan: Plan, seconds: float) -> None:
        self.tuner, self.plan, self.seconds = tuner, plan, seconds
        self.began, self.complete = tuner.clock(), True
        self.tried: list[TriedPlan] = []
        self.found: list[TimedVariant] = []
        self.base_parts: list[np.ndarray] = []  # of the plan as modelled, once per variant
        self.base_ms: list[float] = []

    def best(self) -> tuple[tuple[Subgraph, ...], TuningReport]:
        self.base = self.program(AS_MODELLED, self.plan.subgraphs, math.inf)
        self.began = self.tuner.clock()  # any run needs that program: it does not count
        self.note([self.base() for _ in range(VARIANT_TURNS[0])])
        self.try_variants()
        choices = self.choices()
        chosen = self.decided(choices.fastest())
        before = {decision(s) for s in self.plan.subgraphs}
        ms = statistics.median(self.base_ms)
        report = TuningReport(
            tried=tuple(self.tried),
            before_ms=ms,
            after_ms=ms * chosen.ratio,
            taken=chosen.name,
            changed=sum(decision(s) not in before for s in chosen.subgraphs),
            subgraphs=len(chosen.subgraphs),
            seconds=self.spent,
            complete=self.complete,
        )
        return choices.told(chosen.subgraphs), report

    def try_variants(self) -> None:
        """Times all variants, as far as there is time."""
        for variant in variants(self.plan):
            known = [self.plan.subgraphs, *(one.subgraphs for one in self.found)]
            if not any(same(variant.subgraphs, subgraphs) for subgraphs in known):
                found = self.timed(variant.name, variant.subgraphs, TRYING_SHARE * self.seconds)
                self.found += [] if found is None else [found]
            if not self.complete:
                return

    def choices(self) -> MeasuredChoices:
        """What was measured, by parts."""
        layered = [one.subgraphs for one in self.found if one.name == LAYERS]
        choices = MeasuredChoices(self.plan, layered[0] if layered else self.plan.subgraphs)
        for parts in self.base_parts:
            choices.add(self.plan.subgraphs, parts)
        for one in self.found:
            choices.add(one.subgraphs, one.parts)
        return choices

    def decided(self, mixed: tuple[Subgraph, ...]) -> TimedVariant:
        """The fastest in whole runs, which are made anew: of many variants, one was the fastest by chance."""
        best = TimedVariant(AS_MODELLED, self.plan.subgraphs, 1.0, False, np.zeros(0))
        for name, subgraphs in [(FASTEST_PARTS, mixed), *self.fastest_variant()]:
            if not same(subgraphs, self.plan.subgraphs) and not same(subgraphs, best.subgraphs):
                again = self.timed(name, subgraphs, self.seconds, decides=True)
                if again and again.surely and again.ratio < min(FASTER_SHARE, best.ratio):
                    best = again
        return best

    def fastest_variant(self) -> list[tuple[str, tuple[Subgraph, ...]]]:
        """What was the fastest of all variants, if one was faster than the plan as modelled."""
        found = min(self.found, key=lambda one: one.ratio, default=None)
        return [(found.name, found.subgraphs)] if found and found.ratio < FASTER_SHARE else []

    def timed(
        self, name: str, subgraphs: tuple[Subgraph, ...], until: float, decides: bool = False
    ) -> TimedVariant | None:
        """A plan timed in turns with that as modelled; None where it has no room, or there is no time until then."""
        try:
            turns = self.turns(self.program(name, subgraphs, until), decides)
        except OutOfTime:
            self.complete = False
            return None
        except FAILURES as e:
            self.tried.append(TriedPlan(name, None, None, str(e)))
            return None
        base, other = [a for a, _ in turns], [b for _, b in turns]
        usual, ratios = self.note(base), np.array([b.whole / a.whole for a, b in turns])
        ratio = float(np.median(ratios))
        self.tried.append(TriedPlan(name, _whole_ms(other), ratio))
        surely = float((ratios < 1).mean()) >= 0.5 + 1 / math.sqrt(len(turns))  # two standard deviations
        return TimedVariant(name, subgraphs, ratio, surely, _parts(other) / usual)

    def note(self, base: Sequence[Sample]) -> float:
        """Notes runs of the plan as modelled; gives the seconds of one, put together of the best of each part."""
        parts = _parts(base)
        self.base_ms.append(_whole_ms(base))
        self.base_parts.append(parts / parts.sum())
        return float(parts.sum())

    def program(self, name: str, subgraphs: tuple[Subgraph, ...], until: float) -> Callable[[], Sample]:
        """Runs the program of a plan, to be timed. Raises OutOfTime where it is not compiled in time."""

        def check_time(done: int = 0, total: int = 0) -> None:
            if self.spent > until:
                raise OutOfTime
            if self.tuner.progress:
                self.tuner.progress(f"try {name}", int(self.spent), int(self.seconds))

        check_time()
        with held_inside():
            return self.tuner.sampler(self.tuner.build(with_subgraphs(self.plan, subgraphs), check_time))

    def turns(self, sample: Callable[[], Sample], decides: bool) -> Turns:
        """Samples of the plan as modelled and of another one, which run in turns, each as often first."""
        began = self.spent
        self.base(), sample()  # into caches
        (fewest, limit), share = (DECIDING_TURNS if decides else VARIANT_TURNS), TURNS_SHARES[decides]
        most = min(max(fewest, int(share * self.seconds / max(self.spent - began, 1e-9))), limit)
        found: list[tuple[Sample, Sample]] = []
        while len(found) < most and (self.spent < self.seconds or not found):
            if len(found) % 2:
                other = sample()
                found.append((self.base(), other))
            else:
                found.append((self.base(), sample()))
        return found

    @property
    def spent(self) -> float:
        """Seconds since the trials began."""
        return self.tuner.clock() - self.began


def _whole_ms(samples: Sequence[Sample]) -> float:
    """The milliseconds that runs mostly take."""
    return statistics.median(sample.whole for sample in samples) * 1e3


def _parts(samples: Sequence[Sample]) -> np.ndarray:
    """Seconds of each subgraph, float64 [subgraphs]: its best, since a busy machine makes some longer, none shorter."""
    return np.min([sample.parts for sample in samples], axis=0)
