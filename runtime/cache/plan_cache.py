"""Plans on disk: a plan's subgraphs, found again by the graph's structure, the device and the options."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Protocol

from brickrt import graph as graphs
from brickrt import ops as operators
from brickrt import plan as planner
from brickrt.graph.ir import Graph
from brickrt.graph.time_budget import not_counted
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import Plan, make_plan
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.cache.disk_cache import DiskCache, sources_digest
from brickrt.runtime.cache.subgraph_codec import check, decode, encode


class Tune(Protocol):
    """Better decisions for a graph than those of its plan, found by measuring. `name` is all that they depend on beside
    the device's figures and the options."""

    @property
    def name(self) -> str:
        """What the decisions depend on."""
        ...

    def __call__(self, graph: Graph, plan: Plan) -> tuple[Subgraph, ...] | None:
        """The better decisions; None where nothing could be measured."""
        ...


def remembered_plan(graph: Graph, device: DeviceSpec, options: PlanOptions, tune: Tune | None = None) -> Plan:
    """The plan of a graph: its decisions from disk where they were made before and fit it, else made and kept."""
    store, name = DiskCache.open("plans"), plan_digest(graph, device, options, tune.name if tune else "")
    known = store.get(name)
    if known is not None:
        with suppress(ValueError):  # it is made anew
            return check(make_plan(graph, device, options, decided=decode(known)))
    plan = make_plan(graph, device, options)
    if tune and plan.graph.nodes:
        with not_counted():
            decided = tune(graph, plan)
        if decided is None:
            return plan
        plan = make_plan(graph, device, options, decided=decided)
    store.put(name, encode(plan.subgraphs))
    return plan


@cache
def planning_code() -> str:
    """Digest of the code that plans depend on."""
    return sources_digest(*(Path(next(iter(package.__path__))) for package in (planner, operators, graphs)))


def plan_digest(graph: Graph, device: DeviceSpec, options: PlanOptions, tune: str = "") -> str:
    """All that a plan depends on; of constants only which tensors are some."""
    digest = hashlib.sha256(f"{planning_code()}{device}{options}{tune}{graph.inputs}{graph.outputs}".encode())
    for node in graph.nodes:
        digest.update(f"{node}{graph.out(node)}".encode())
    for name in (*graph.inputs, *graph.constants):
        digest.update(f"{name}{graph.types[name]}{name in graph.constants}".encode())
    return digest.hexdigest()[:32]
