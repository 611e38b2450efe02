"""Plans on disk: the decisions about a graph, by its structure, the device and the options."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from brickrt import ops as operators
from brickrt import plan as planner
from brickrt.graph.ir import Graph
from brickrt.plan.device import DeviceSpec
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import Plan, make_plan
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.disk_cache import DiskCache, sources_digest


def remembered_plan(graph: Graph, device: DeviceSpec, options: PlanOptions) -> Plan:
    """The plan of a graph: its decisions from disk where they were made before, else made and kept."""
    store, name = DiskCache.open("plans"), _digest(graph, device, options)
    known = store.get(name)
    if known is not None:
        return make_plan(graph, device, options, decided=tuple(_subgraph(entry) for entry in json.loads(known)))
    plan = make_plan(graph, device, options)
    store.put(name, json.dumps([s.to_dict() for s in plan.subgraphs]).encode())
    return plan


def _subgraph(entry: dict[str, Any]) -> Subgraph:
    tuples = {name: tuple(entry[name]) for name in ("nodes", "tails", "brick", "band")}
    return Subgraph(**entry | tuples | {"node_bricks": tuple(tuple(brick) for brick in entry["node_bricks"])})


@cache
def _code() -> str:
    return sources_digest(Path(planner.__file__).parent, Path(operators.__file__).parent)


def _digest(graph: Graph, device: DeviceSpec, options: PlanOptions) -> str:
    """All that a plan depends on; of constants only which tensors are some."""
    digest = hashlib.sha256(f"{_code()}{device}{options}{graph.inputs}{graph.outputs}".encode())
    for node in graph.nodes:
        digest.update(f"{node}{graph.out(node)}".encode())
    for name in (*graph.inputs, *graph.constants):
        digest.update(f"{name}{graph.types[name]}{name in graph.constants}".encode())
    return digest.hexdigest()[:32]
