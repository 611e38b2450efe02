"""The plan of a network is the one that runs fastest, by a stopwatch that the tests hold."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from brickrt.graph.errors import BrickError
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import make_plan, with_subgraphs
from brickrt.runtime.cache.plan_cache import remembered_plan
from brickrt.runtime.cache.subgraph_codec import check
from brickrt.runtime.cpu.tune import AS_MODELLED, FASTEST_PARTS, Tuner
from brickrt.runtime.engines import choose_engine, cpu_tuner
from brickrt.runtime.environment import first_tune_seconds
from brickrt.runtime.lowering.lower import lower
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.tuning.timed_program import Sample
from brickrt.runtime.tuning.variants import LAYERS
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.plan_graphs import Sketch, bottlenecks
from tests.support.programs import forks
from tests.support.task_checks import SERVER, check_twice, with_values


@pytest.fixture(autouse=True)
def _own_caches(monkeypatch, tmp_path):
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))


class Stopwatch:
    """Tunes plans whose subgraphs take `cost` milliseconds each, and a run `whole` of their sum; compiling takes
    `build_s` seconds. `built` are the plans that ran."""

    def __init__(self, cost, seconds=1000.0, whole=lambda plan, total: total, build_s=1.0, fits=lambda plan: True):
        self.cost, self.whole, self.build_s, self.fits = cost, whole, build_s, fits
        self.now, self.built = 0.0, []
        self.tuner = Tuner(self.build, seconds, sampler=self.sampler, clock=lambda: self.now)

    def build(self, plan, progress):
        if not self.fits(plan):
            raise BrickError("no room")
        self.now += self.build_s
        progress(1, 1)
        self.built.append(plan)
        return SimpleNamespace(tasks=SimpleNamespace(plan=plan))

    def sampler(self, program):
        def sample():
            plan = program.tasks.plan
            parts = np.array([self.cost(plan, s) for s in plan.subgraphs]) / 1e3
            whole = self.whole(plan, parts.sum())
            self.now += whole
            return Sample(whole, parts)

        return sample

    def plan(self, graph, **options):
        return check(remembered_plan(graph, SERVER, PlanOptions(**options), self.tuner))

    @property
    def report(self):
        return self.tuner.reports[-1]


def by_algorithm(**cost):
    """The cost of subgraphs whose nodes are computed by these algorithms; others cost 1 a node."""
    return lambda plan, s: sum(cost.get(plan.algorithms.get(k, "direct"), 1.0) for k in s.members)


def merged(plan):
    return [s.nodes for s in plan.subgraphs if len(s.nodes) > 1]


def wide(layers=3, channels=64, size=14):
    """Convolutions by Winograd's algorithm in tiles of 4; tiles of 2 are modelled to take little longer."""
    s = Sketch()
    x = s.input(1, channels, size, size)
    for _ in range(layers):
        x = s.conv(x, channels)
    return s.graph()


def test_the_faster_algorithm_is_taken():
    assert set(make_plan(wide(), SERVER).algorithms.values()) == {"winograd4"}
    watch = Stopwatch(by_algorithm(winograd2=0.5))
    plan = watch.plan(wide())
    assert list(plan.algorithms.values()) == ["winograd2"] * 3 and not merged(plan)
    told = [s.why for s in plan.subgraphs if set(s.nodes) & plan.algorithms.keys()]
    assert told == ["measured faster: layerwise"] * 3
    assert watch.report.before_ms - watch.report.after_ms == pytest.approx(1.5)
    assert watch.report.complete and watch.report.changed == 3


@pytest.mark.parametrize("cost", [lambda nodes: 1.0, lambda nodes: nodes**2], ids=["merged", "layers"])
def test_merges_are_taken_where_they_are_faster(cost):
    watch = Stopwatch(lambda plan, s: cost(len(s.nodes)))
    plan = watch.plan(bottlenecks(2))
    assert bool(merged(plan)) == (cost(2) < 2 * cost(1))
    best = min(sum(watch.cost(one, s) for s in one.subgraphs) for one in watch.built)
    assert sum(watch.cost(plan, s) for s in plan.subgraphs) == pytest.approx(best)


def test_layers_tell_that_they_were_faster_than_merged():
    graph = bottlenecks(1)
    assert merged(make_plan(graph, SERVER, PlanOptions()))
    plan = Stopwatch(lambda plan, s: 1.0 if len(s.nodes) == 1 else 9.0).plan(graph)
    assert not merged(plan) and "layerwise: measured faster than merged" in {s.why for s in plan.subgraphs}


def test_parts_are_put_together():
    """Layers are faster in the first half of the graph, merged in the second: no plan that was tried is the fastest."""
    graph = bottlenecks(4)
    half = len(make_plan(graph, SERVER).graph.nodes) // 2

    def cost(plan, s):
        alone = len(s.nodes) == 1
        return len(s.nodes) * (1.0 if alone == (s.nodes[-1] < half) else 2.0)

    watch = Stopwatch(cost)
    plan = watch.plan(graph)
    first, second = ([n for n in merged(plan) if (n[-1] < half) == early] for early in (True, False))
    assert second and len(first) <= 1 and watch.report.taken == FASTEST_PARTS


def test_equal_blocks_get_equal_choices():
    """Though one of them was measured faster as it was: the mean of all counts."""
    graph = wide(6)

    def cost(plan, k):
        return 1.0 if plan.algorithms.get(k) == "winograd2" else 0.9 if k == 3 else 2.0

    plan = Stopwatch(lambda plan, s: sum(cost(plan, k) for k in s.nodes)).plan(graph)
    assert list(plan.algorithms.values()) == ["winograd2"] * 6


def test_whole_runs_decide():
    """Though every part is faster by another algorithm, runs as planned are shorter."""
    graph = wide()
    usual = set(make_plan(graph, SERVER).algorithms.values())

    def whole(plan, total):
        return 0.01 if set(plan.algorithms.values()) == usual else 0.012

    watch = Stopwatch(by_algorithm(winograd2=0.1), whole=whole)
    plan = watch.plan(graph)
    assert set(plan.algorithms.values()) == usual and watch.report.taken == AS_MODELLED
    assert watch.report.after_ms == watch.report.before_ms and not watch.report.changed


@pytest.mark.parametrize("seed", range(2))
def test_noise_changes_no_plan(seed):
    """All choices take equally long, and a run up to three times so."""
    rng = np.random.default_rng(seed)
    watch = Stopwatch(lambda plan, s: len(s.members) * rng.uniform(1, 3))
    assert watch.plan(bottlenecks(2)).subgraphs and watch.report.after_ms >= 0.9 * watch.report.before_ms


def test_without_time_nothing_is_tuned():
    watch = Stopwatch(by_algorithm(), seconds=0.0)
    plan = watch.plan(wide())
    assert plan.subgraphs == make_plan(wide(), SERVER).subgraphs and not watch.built and not watch.tuner.reports


def test_the_time_is_kept():
    """What compiles too long is left; the plan as modelled stays, and is kept as measured."""
    watch = Stopwatch(by_algorithm(), seconds=30.0, build_s=20.0)
    watch.plan(bottlenecks(2))
    assert not watch.report.complete and watch.report.seconds <= 50
    assert len(watch.built) <= 3 and watch.report.taken == AS_MODELLED


def test_what_has_no_room_is_left_out():
    watch = Stopwatch(lambda plan, s: 1.0, fits=lambda plan: len(watch.built) < 1 or bool(merged(plan)))
    plan = watch.plan(bottlenecks(2))
    notes = {one.name: one.note for one in watch.report.tried}
    assert notes[LAYERS] == "no room" and merged(plan)


def test_a_plan_that_cannot_run_is_taken_as_modelled(capsys):
    watch = Stopwatch(by_algorithm(), fits=lambda plan: False)
    assert watch.plan(wide()).subgraphs == make_plan(wide(), SERVER).subgraphs
    assert capsys.readouterr().err == (
        "brickrt: the plan is taken as modelled, since it could not be measured: no room\n"
    )


def test_what_was_chosen_is_kept_for_each_set_of_options():
    watch = Stopwatch(by_algorithm(winograd2=0.5))
    first, builds = watch.plan(wide()), len(watch.built)
    later = Stopwatch(by_algorithm(), seconds=0.0)
    assert later.plan(wide()).subgraphs == first.subgraphs and len(watch.built) == builds
    assert later.plan(wide(), exact=True).subgraphs == make_plan(wide(), SERVER, PlanOptions(exact=True)).subgraphs
    assert remembered_plan(wide(), SERVER, PlanOptions()).subgraphs == make_plan(wide(), SERVER).subgraphs
    again = Stopwatch(by_algorithm())
    again.tuner.again = True
    assert again.plan(wide()).subgraphs != first.subgraphs and again.built


def test_another_process_finds_it():
    first = Stopwatch(by_algorithm(winograd2=0.5)).plan(wide())
    script = (
        "from tests.runtime.cpu.test_tune import *\n"
        "print(Stopwatch(by_algorithm(), seconds=0.0).plan(wide()).algorithms)"
    )
    done = forks.run(["-c", script], check=True)
    assert done.stdout.strip() == str(first.algorithms)


def test_tuned_plans_compute_the_same():
    """By other algorithms within the tolerance, and the same bits on any number of threads."""
    graph, inputs = with_values(wide(2, 32, 10))
    engine = choose_engine("cpu")
    modelled = make_plan(graph, engine.spec)
    watch = Stopwatch(by_algorithm(**dict.fromkeys(modelled.algorithms.values(), 9.0)))
    plan = check(with_subgraphs(modelled, watch.tuner(graph, modelled)))
    assert plan.algorithms != modelled.algorithms
    found = []
    for threads in (1, 2, 3):
        program = engine.build(lower(plan), dict(graph.constants), threads, None)
        check_twice(program, graph, inputs, interpret(graph, inputs))
        outputs = [np.empty(graph.types[name].shape, np.float32) for name in graph.outputs]
        program.run([inputs[name] for name in graph.inputs], outputs)
        found.append(outputs[0].tobytes())
    assert len(set(found)) == 1


def test_real_programs_are_timed():
    """By the clock of this machine, whatever that says."""
    graph, _ = with_values(wide(2, 16, 12))
    engine = choose_engine("cpu")
    tuner = cpu_tuner(engine.build, 2, 30.0)
    plan = remembered_plan(graph, engine.spec, PlanOptions(), tuner)
    (report,) = tuner.reports
    assert check(plan) and report.before_ms > 0 and report.tried and report.subgraphs == len(plan.subgraphs)
    assert sum(one.ratio is not None for one in report.tried) >= 1


def test_the_first_use_is_not_tuned_unless_asked(monkeypatch):
    assert first_tune_seconds() == 0
    monkeypatch.setenv("BRICKRT_TUNE_SECONDS", "2.5")
    assert first_tune_seconds() == 0, "BRICKRT_CALIBRATE=0, under which tests run, measures nothing"
    monkeypatch.setenv("BRICKRT_CALIBRATE", "1")
    assert first_tune_seconds() == 2.5
    for text in ("-1", "soon", "inf", "nan"):
        monkeypatch.setenv("BRICKRT_TUNE_SECONDS", text)
        with pytest.raises(BrickError, match=f"BRICKRT_TUNE_SECONDS is '{text}': give it a number") as e:
            first_tune_seconds()
        assert "\n" not in str(e.value)


def test_a_strategy_that_is_asked_for_is_not_tuned():
    graph, _ = with_values(wide(1, 16, 6))
    asked = []
    engine = replace(choose_engine("cpu"), tune=lambda *given: asked.append(given) or Tuner(None, 0.0))
    for strategy, measured, times in (("layerwise", True, 0), ("auto", False, 0), ("auto", True, 1)):
        Pipeline(engine, PlanOptions(strategy), threads=2).plan(graph, measured)
        assert len(asked) == times
