"""How long arena tensors live: from their first write to their last use, in subgraphs or on any clock of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from brickrt.graph.ir import Node
from brickrt.plan.geometry.arena_packing import Lifetime
from brickrt.plan.plan import Plan
from brickrt.runtime.lowering.task_graph import Allocation, TaskGraph, stored_in


def subgraph_lifetimes(plan: Plan, allocations: Mapping[str, Allocation], aliases: Mapping[str, str]) -> list[Lifetime]:
    """Lifetimes of all arena tensors, counted in subgraphs, in order of birth."""
    users: dict[str, list[int]] = {}
    for s, subgraph in enumerate(plan.subgraphs):
        for k in subgraph.members:
            for name in _arena_tensors(plan.graph.nodes[k], allocations, aliases):
                users.setdefault(name, []).append(s)
    return [Lifetime(n, allocations[n].nbytes, s[0], s[-1], tuple(dict.fromkeys(s))) for n, s in users.items()]


def task_lifetimes(tasks: TaskGraph, start: np.ndarray, end: np.ndarray) -> dict[str, tuple[int, int]]:
    """Per arena tensor the least `start` of the tasks that write it, and the greatest `end` of those whose nodes use
    it; `start` and `end` are per task: their numbers, or times."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for steps in (steps for steps in tasks.steps if len(steps.tasks)):
        node, low, high = tasks.plan.graph.nodes[steps.node], int(start[steps.tasks].min()), int(end[steps.tasks].max())
        written = tasks.root(node.output)
        for name in _arena_tensors(node, tasks.allocations, tasks.aliases):
            last[name] = max(last.get(name, high), high)
            if name == written:
                first[name] = min(first.get(name, low), low)
    return {name: (first[name], last[name]) for name in first}


def _arena_tensors(node: Node, allocations: Mapping[str, Allocation], aliases: Mapping[str, str]) -> Iterator[str]:
    """The arena tensors that a node reads and writes, views of them included."""
    for name in (*node.inputs, node.output):
        root = stored_in(aliases, name)
        if root in allocations and allocations[root].kind == "arena":
            yield root
