"""Modelled memory traffic of plans beside that of the same layers one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from brickrt.dashboard.live.frame_state import TrafficComparison
from brickrt.plan.plan import Plan, plan_subgraphs, with_subgraphs
from brickrt.runtime.analysis.cache_simulator import Locality
from brickrt.runtime.analysis.modelled_traffic import locality
from brickrt.runtime.execution.report import Report
from brickrt.runtime.lowering.lower import lower
from brickrt.runtime.lowering.task_graph import TaskGraph


def layerwise_traffic(report: Report) -> TrafficComparison | None:
    """Figures of all stages of a report; None where nothing is planned. Takes up to 1.5 s for networks of the zoo, so
    it is not for while a run goes on."""
    return _compared(tuple(program.tasks for program in report.programs)) if report.programs else None


@lru_cache(1)  # the dashboard and the report want the same
def _compared(stages: tuple[TaskGraph, ...]) -> TrafficComparison:
    now = [locality(tasks) for tasks in stages]
    then = [locality(lower(_layer_by_layer(tasks.plan))) for tasks in stages]
    ours, theirs = moved_bytes(now), moved_bytes(then)
    known = [name for name in ours if name in theirs]
    both = [{name: moved[name] for name in known} for moved in (ours, theirs)]
    return TrafficComparison(mean_reuse(now), mean_reuse(then), *both)


def _layer_by_layer(plan: Plan) -> Plan:
    """The same graph with the same layouts and algorithms, no layers merged."""
    alone = replace(plan, options=replace(plan.options, strategy="layerwise", rules="model"))
    return with_subgraphs(alone, plan_subgraphs(alone, algorithms=plan.algorithms))


def mean_reuse(stages: Sequence[Locality]) -> float:
    """The mean over what all stages read again."""
    return sum(stage.reread * stage.reuse_mean for stage in stages) / max(1, sum(stage.reread for stage in stages))


def moved_bytes(stages: Sequence[Locality]) -> dict[str, int]:
    """The bytes beyond each level that is known of all stages."""
    known = [name for name in stages[0].levels if all(name in stage.levels for stage in stages)] if stages else []
    return {name: sum(stage.levels[name].moved for stage in stages) for name in known}
