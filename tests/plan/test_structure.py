"""Subgraphs that are counted once because they are equal: the plan is that of subgraphs counted one by one."""

from __future__ import annotations

import itertools

from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import make_plan
from tests.support.graphs.plan_graphs import bottlenecks, gated_depthwise
from tests.support.task_checks import SERVER


def test_plans_are_those_of_subgraphs_by_themselves(monkeypatch):
    graphs = [bottlenecks(3, size=56, channels=16), gated_depthwise()]
    together = [make_plan(graph, SERVER, PlanOptions()).subgraphs for graph in graphs]
    number = itertools.count()
    monkeypatch.setattr(CostModel, "structure", lambda self, nodes: next(number))
    assert together == [make_plan(graph, SERVER, PlanOptions()).subgraphs for graph in graphs]
    assert next(number) > sum(map(len, together))
