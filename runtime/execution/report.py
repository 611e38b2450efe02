"""What one call ran and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from brickrt.plan.plan import Plan
from brickrt.runtime.analysis.memory_projection import project
from brickrt.runtime.analysis.modelled_traffic import locality
from brickrt.runtime.execution.stage_cache import CompiledStage
from brickrt.runtime.lowering.task_graph import TaskGraph
from brickrt.runtime.program_protocol import Counts, Program
from brickrt.runtime.stats import Stats

NO_COUNTS = Counts(0, 0, 0, 0)
MOST_TOLD = 8  # stages, and nodes on the host, that a short report names


@dataclass(frozen=True, eq=False)
class Released:
    """What is still known of a program that is gone."""

    tasks: TaskGraph
    threads: int
    constant_bytes: int
    working_bytes: int
    notes: Mapping[str, str]


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """What one call ran: plans of its stages in order, nodes that ran on the host and why, and what was measured."""

    plans: tuple[Plan, ...]
    fallback: dict[str, str]
    measured: Stats
    programs: tuple[Program | Released, ...] = ()

    def released(self) -> Report:
        """The same, holding no program: neither code nor constants nor tensors."""
        gone = (Released(p.tasks, p.threads, p.constant_bytes, p.working_bytes, p.notes) for p in self.programs)
        return replace(self, programs=tuple(gone))

    @property
    def notes(self) -> dict[str, str]:
        """What the engine could not use, by name, and why; of the last stage that has something to say of it."""
        return {name: text for program in self.programs for name, text in program.notes.items()}

    @property
    def projected_bytes(self) -> int:
        """Memory that the plans of all stages need, as known before they ran."""
        return sum(project(program.tasks, program.threads).total for program in self.programs)

    @property
    def peak_bytes(self) -> int:
        """Memory that the programs of all stages hold while they run, with inputs and outputs."""
        return sum(map(_peak_bytes, self.programs))

    @cached_property
    def stats(self) -> Stats:
        """The measured figures, with the modelled bytes per memory level."""
        found = [locality(program.tasks).levels for program in self.programs]
        known = [name for name in found[0] if all(name in levels for levels in found)] if found else []
        moved = {name: sum(levels[name].moved for levels in found) for name in known}
        return self.measured + Stats(level_bytes=moved)

    def __repr__(self) -> str:
        told = [repr(plan) for plan in self.plans if plan.subgraphs]
        if len(told) > 1:
            told = [f"stage {k}: {text.partition(chr(10))[0]}" for k, text in enumerate(told)]
        lines = _shortened(told) + _shortened([f"on the host: {name}" for name in self.fallback])
        return "\n".join(lines) or "nothing to compute: the outputs are known"

    def __str__(self) -> str:
        lines = [str(plan) for plan in self.plans if plan.subgraphs]
        lines += [f"host: {name} ({why})" for name, why in self.fallback.items()]
        return "\n".join(lines) or "nothing to compute: the outputs are known"


def _shortened(lines: list[str]) -> list[str]:
    return lines if len(lines) <= MOST_TOLD else [*lines[:MOST_TOLD], f"and {len(lines) - MOST_TOLD} more"]


@dataclass(eq=False)
class StageRun:
    """One stage of a call, as noted while it ran: what its workers counted, and times."""

    stage: CompiledStage
    counts: Counts = NO_COUNTS
    run_ms: float = 0.0
    host_ms: float = 0.0
    compile_ms: float = 0.0
    host_nodes: dict[str, float] = field(default_factory=dict)

    @property
    def stats(self) -> Stats:
        """The figures of this stage."""
        program, counts = self.stage.program, self.counts
        times = Stats(
            compile_ms=self.compile_ms, run_ms=self.run_ms, host_ms=self.host_ms, host_nodes=dict(self.host_nodes)
        )
        if program is None or counts is NO_COUNTS:
            return times
        return times + Stats(
            tasks=counts.tasks,
            complete_first=counts.complete_first,
            waits=counts.waits,
            revisits=counts.revisits,
            recomputed=program.tasks.recomputed,
            peak_bytes=_peak_bytes(program),
        )


def _peak_bytes(program: Program | Released) -> int:
    graph = program.tasks.plan.graph
    io_bytes = sum(graph.types[name].nbytes for name in (*graph.inputs, *graph.outputs))
    return program.constant_bytes + program.working_bytes + io_bytes


def report_of(call: Sequence[StageRun]) -> Report:
    """The report on a call's stages."""
    stages = [ran.stage for ran in call]
    fallback = {name: why for stage in stages for name, why in stage.specialized.host_reasons.items()}
    programs = tuple(stage.program for stage in stages if stage.program is not None)
    return Report(tuple(stage.plan for stage in stages), fallback, Stats.total(ran.stats for ran in call), programs)
