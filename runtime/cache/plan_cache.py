"""Plans on disk: a plan's subgraphs, found again by the graph's structure, the device and the options."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np

from brickrt import graph as graphs
from brickrt import ops as operators
from brickrt import plan as planner
from brickrt.graph.ir import Graph
from brickrt.graph.time_budget import not_counted
from brickrt.graph.uncollected import uncollected
from brickrt.ops.base import Op
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import Plan, make_plan, with_subgraphs
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

    @property
    def again(self) -> bool:
        """Whether decisions are made anew that were made before."""
        ...

    def __call__(self, graph: Graph, plan: Plan) -> tuple[Subgraph, ...] | None:
        """The better decisions; None where nothing could be measured."""
        ...


def remembered_plan(graph: Graph, device: DeviceSpec, options: PlanOptions, tune: Tune | None = None) -> Plan:
    """The plan of a graph: its decisions from disk where they were made before and fit it, else made and kept. With
    `tune`, what it has found, or finds now."""
    store, modelled = DiskCache.open("plans"), plan_digest(graph, device, options)
    tune = tune if graph.nodes else None
    measured = hashlib.sha256(f"{modelled}{tune.name}".encode()).hexdigest()[:32] if tune else ""
    if tune and not tune.again and (known := _known(store.get(measured), graph, device, options)):
        return known
    plan = _known(store.get(modelled), graph, device, options)
    if plan is None:
        with uncollected():
            plan = make_plan(graph, device, options)
        store.put(modelled, encode(plan.subgraphs))
    if tune:
        with not_counted():
            decided = tune(graph, plan)
        if decided is not None:
            plan = with_subgraphs(plan, decided)
            store.put(measured, encode(decided))
    return plan


def _known(text: bytes | None, graph: Graph, device: DeviceSpec, options: PlanOptions) -> Plan | None:
    """The plan with the decisions of a text; None where they do not fit the graph: it is made anew."""
    with suppress(ValueError):
        return check(make_plan(graph, device, options, decided=decode(text))) if text is not None else None
    return None


@cache
def planning_code() -> str:
    """Digest of the code that plans depend on."""
    return sources_digest(*(Path(next(iter(package.__path__))) for package in (planner, operators, graphs)))


def plan_digest(graph: Graph, device: DeviceSpec, options: PlanOptions) -> str:
    """All that a plan as modelled depends on; of constants only which tensors are some."""
    digest = hashlib.sha256(f"{planning_code()}{device}{options}{graph.inputs}{graph.outputs}".encode())
    ops: dict[Op, int] = {}  # equal ones are written out once
    for node in graph.nodes:
        known = len(ops)
        told = node.op if (number := ops.setdefault(node.op, known)) == known else number
        digest.update(f"{node.name}{told}{node.inputs}{node.output}{node.origin}{graph.out(node)}".encode())
    for name in (*graph.inputs, *graph.constants):
        digest.update(f"{name}{graph.types[name]}{name in graph.constants}".encode())
    return digest.hexdigest()[:32]


def model_digest(graph: Graph, device: DeviceSpec, options: PlanOptions, constants: Mapping[str, np.ndarray]) -> str:
    """A digest of a planned model and its weights: what runs that go on must have in common."""
    digest = hashlib.sha256(plan_digest(graph, device, options).encode())
    for name, array in sorted(constants.items()):
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]
