"""What is measured decides: merged or layer by layer, by the library or by kernels, part by part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickrt.graph.errors import BrickError
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import make_plan
from brickrt.runtime.cache.plan_cache import remembered_plan
from brickrt.runtime.cuda.program import COPIES, CudaProgram
from brickrt.runtime.cuda.tune import Tuner
from brickrt.runtime.lowering.lower import lower
from brickrt.runtime.session import runtime
from tests.support.cuda.callback_kernels import CallbackDriver, use_callbacks
from tests.support.cuda.engines import engine_on
from tests.support.cuda.host_driver import HostDriver
from tests.support.cuda.host_kernels import needs_compiler
from tests.support.cuda.zoo_runs import network
from tests.support.cudnn.fake_cudnn import Frontend, HostLibrary
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.plan_graphs import Sketch
from tests.support.task_checks import check_twice, with_values

pytestmark = needs_compiler


@pytest.fixture(autouse=True)
def _own_caches(monkeypatch, tmp_path):
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))


@pytest.fixture
def callbacks(monkeypatch):
    use_callbacks(monkeypatch)


class TunedPlans:
    """Plans of a graph, tuned on the host at made-up costs: `cost` of the numbers of launches, and of calls of the
    library, that a graph holds."""

    def __init__(self, graph, cost, strategy="padded", library=False, fits=lambda plan: True):
        self.graph, self.inputs = with_values(graph)
        self.library = HostLibrary(Frontend()) if library else None
        self.fits, self.built, self.calls = fits, [], []
        self.driver = CallbackDriver(cost=lambda calls: self.cost(cost, calls), given_library=self.library)
        self.options = PlanOptions(strategy, brick=4)

    def cost(self, of, calls):
        called = len(self.library.frontend.ran) if self.library else 0
        self.calls.append(called)
        return of(sum(call[1] for call in calls if call[0] == "graph"), called - sum(self.calls[-2:-1]))

    def build(self, plan):
        if not self.fits(plan):
            raise BrickError("no room on the GPU")
        self.built.append(plan.subgraphs)
        return CudaProgram(lower(plan), self.driver)

    def plan(self):
        graph = self.graph
        return remembered_plan(graph, self.driver.spec, self.options, Tuner(self.build, f"trial {id(self)}"))

    def check(self, plan):
        check_twice(self.build(plan), self.graph, self.inputs, interpret(self.graph, self.inputs))
        self.driver.check()


def chains(*lengths):
    """Convolutions one after the other, of which some are read outside: so many before each."""
    sketch, ends = Sketch(), []
    x = sketch.input(1, 4, 16, 16)
    for length in lengths:
        for _ in range(length):
            x = sketch.conv(x, 4)
        ends.append(x)
    return sketch.graph(*ends)


def merged(plan):
    """Numbers of nodes of the subgraphs that hold several."""
    return [len(s.nodes) for s in plan.subgraphs if len(s.nodes) > 1]


@pytest.mark.parametrize("strategy", ["padded", "memoized"])
def test_what_is_faster_is_taken(callbacks, strategy):
    """At a cost per launch bricks are merged; where launches cost less than nothing they are not."""
    few = TunedPlans(chains(3, 3), lambda launches, _: launches, strategy)
    many = TunedPlans(chains(3, 3), lambda launches, _: 1 / launches, strategy)
    assert merged(few.plan()) and not merged(many.plan())
    assert any(s.why == "layerwise: measured faster than merged" for s in many.plan().subgraphs)
    for trial in (few, many):
        trial.check(trial.plan())


def test_parts_are_chosen_one_by_one(callbacks):
    """One launch of three merged nodes is slower than three launches, one of four is faster than four."""
    alone = {COPIES: 5.0, 3 * COPIES: 2.0, 4 * COPIES: 50.0}
    whole = {3: 9.0, 5: 1.0, 8: 9.0}  # the two and a layer; the second, three layers and a layer; layers
    trial = TunedPlans(chains(2, 3), lambda launches, _: (alone | whole)[launches])
    assert merged(make_plan(trial.graph, trial.driver.spec, trial.options)) == [3, 4]
    plan = trial.plan()
    assert merged(plan) == [4] and len(trial.built) == 3
    trial.check(plan)


def model(monkeypatch, factor):
    """Has the cost model say that subgraphs take `factor(nodes)` times as long merged as layer by layer."""

    def merged_us(self, trials, blocks=None, tiles=None):
        us = factor(trials.nodes) * sum(self.layerwise_us(k) for k in trials.nodes)
        return np.full(len(trials.bricks), us)

    for name in ("padded_us", "memoized_us", "fused_us"):
        monkeypatch.setattr(CostModel, name, merged_us)


def test_merges_that_the_model_puts_a_little_behind_are_measured(callbacks, monkeypatch):
    """And taken where they are ahead; a layer says that it was measured where they are not."""
    model(monkeypatch, lambda nodes: 1.2)
    few = TunedPlans(chains(3, 3), lambda launches, _: launches, "auto")
    many = TunedPlans(chains(3, 3), lambda launches, _: 1 / launches, "auto")
    assert not merged(make_plan(few.graph, few.driver.spec, few.options))
    plan = few.plan()
    assert merged(plan) and not merged(many.plan())
    assert all(s.why.startswith("measured faster: ") for s in plan.subgraphs if len(s.nodes) > 1)
    assert "layerwise: measured faster than merged" in {s.why for s in many.plan().subgraphs}
    assert len(few.built) == len(many.built) == 2
    few.check(plan)


def test_merges_that_the_model_puts_far_behind_are_not_tried(callbacks, monkeypatch):
    model(monkeypatch, lambda nodes: 1.5)
    trial = TunedPlans(chains(3, 3), lambda launches, _: launches, "auto")
    assert not merged(trial.plan()) and len(trial.built) == 1


@pytest.mark.parametrize(("first", "planned"), [(1.2, []), (0.5, [3])])
def test_parts_of_what_the_model_puts_behind_are_chosen_one_by_one(callbacks, monkeypatch, first, planned):
    """As in the test above: three layers are faster, four slower than merged. The model may want the three merged."""
    alone = {COPIES: 5.0, 3 * COPIES: 2.0, 4 * COPIES: 50.0}
    whole = {3: 9.0, 5: 1.0, 6: 9.0, 8: 9.0}
    model(monkeypatch, lambda nodes: first if 0 in nodes else 1.2)
    trial = TunedPlans(chains(2, 3), lambda launches, _: (alone | whole)[launches], "auto")
    assert merged(make_plan(trial.graph, trial.driver.spec, trial.options)) == planned
    plan = trial.plan()
    assert merged(plan) == [4] and len(trial.built) == 3 + bool(planned)
    trial.check(plan)


def test_whole_runs_decide(callbacks, monkeypatch):
    """Though each part is faster merged."""
    model(monkeypatch, lambda nodes: 1.2)
    trial = TunedPlans(chains(2, 3), lambda launches, _: {3: 9.0, 8: 5.0}.get(launches, launches), "auto")
    assert not merged(trial.plan()) and len(trial.built) == 2


def test_merges_beside_the_plan_may_not_fit(callbacks, monkeypatch):
    model(monkeypatch, lambda nodes: 1.2)
    trial = TunedPlans(chains(3, 3), lambda launches, _: launches, "auto", fits=lambda plan: not merged(plan))
    plan = trial.plan()
    assert not merged(plan) and len(trial.built) == 1
    assert all(s.why.endswith("with more merged it does not run: no room on the GPU") for s in plan.subgraphs)


def test_kernels_are_taken_where_the_library_is_slower(callbacks):
    """Layer by layer: the library computes all convolutions but those that kernels do at less cost."""
    slow = TunedPlans(chains(1, 1, 1), lambda launches, called: launches + called, "layerwise", library=True)
    fast = TunedPlans(chains(1, 1, 1), lambda launches, called: launches - called / 2, "layerwise", library=True)
    (own, theirs) = ([k for s in trial.plan().subgraphs for k in s.kernels] for trial in (slow, fast))
    convolutions = [k for k, node in enumerate(slow.plan().graph.nodes) if node.op.name == "Conv"]
    assert own and set(own) <= set(convolutions) and not theirs
    for trial, calls in ((slow, False), (fast, True)):
        trial.library.ran.clear()
        trial.check(trial.plan())
        assert bool(trial.library.ran) == calls
    notes = slow.build(slow.plan()).notes["cuDNN"]
    assert "kernels were measured faster" in notes


def test_decisions_are_kept(callbacks):
    trial = TunedPlans(chains(3, 3), lambda launches, _: 1 / launches)
    first, times = trial.plan(), len(trial.calls)
    assert times and trial.plan().subgraphs == first.subgraphs and len(trial.calls) == times


def test_a_plan_stays_where_its_layers_do_not_fit(callbacks):
    trial = TunedPlans(
        chains(3, 3), lambda launches, _: 1 / launches, fits=lambda plan: any(len(s.nodes) > 1 for s in plan.subgraphs)
    )
    plan = trial.plan()
    assert merged(plan)
    assert all(s.why.endswith("layer by layer it does not run: no room on the GPU") for s in plan.subgraphs)


def test_what_could_not_be_measured_is_not_kept(callbacks, capsys):
    """Memory may be there the next time."""
    trial = TunedPlans(chains(3, 3), lambda launches, _: 1 / launches, fits=lambda plan: False)
    assert merged(trial.plan()) and not trial.calls
    assert capsys.readouterr().err.endswith("it could not be measured: no room on the GPU\n")
    trial.fits = lambda plan: True
    assert not merged(trial.plan())


def test_nothing_is_measured_where_runs_are_checked(callbacks, monkeypatch, capsys):
    """What was measured before is taken, so that the plan is the one that failed."""
    trial = TunedPlans(chains(3, 3), lambda launches, _: 1 / launches)
    with monkeypatch.context() as checked:
        checked.setenv("BRICKRT_CHECKED", "1")
        assert merged(trial.plan()) and not trial.calls
        assert capsys.readouterr().err == (
            "brickrt: the plan is taken as modelled: BRICKRT_CHECKED is set, and nothing is measured\n"
        )
    assert not merged(trial.plan())


def test_a_runtime_measures_what_nothing_was_asked_of(monkeypatch):
    """Once for a network; not where a strategy is asked for."""
    driver, measured = HostDriver(flags=("-O0",)), []
    engine = engine_on(driver)

    def tune(threads, progress):
        measured.append(progress)
        return Tuner(lambda plan: engine.build(lower(plan), dict(plan.graph.constants), 1, progress), "host")

    monkeypatch.setattr(runtime, "choose_engine", lambda *_: replace(engine, tune=tune))
    model, feeds, want = network("nafnet")
    for strategy, times in (("auto", 1), ("layerwise", 1), ("auto", 2)):
        found = runtime.Runtime(model, device="cuda", strategy=strategy).execute(feeds)["y"]
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-4 * np.abs(want).max())
        assert len(measured) == times
    driver.check()
