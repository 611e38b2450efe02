"""Which launches a task graph becomes, and what each waits for.

A layer is one launch, and so are the bricks of a padded or fused subgraph, a block each; fused ones have their scratch
in shared memory. A memoized subgraph is cut in groups of bricks that follow one another, a launch per group and node;
or a chain of memoized subgraphs is one launch of the persistent kernel, whose blocks wait for one another.

    memoized, in groups          persistent
    a0 b0 | a1 b1 | a2 b2        [a b c d]      a, b, …: nodes; 0, 1, 2: groups of bricks
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from brickrt.runtime.lowering.task_graph import TaskGraph

Kind = Literal["layer", "bricks", "fused", "persistent"]
CHAIN_STEPS = 8  # nodes of one persistent kernel: it takes the registers and the shared memory of the greediest


@dataclass(frozen=True, eq=False)
class Launch:
    """`tasks` run together, ascending; `steps` are indices of the graph's steps that hold them, `after` the launches
    that must be complete before, all earlier ones; `subgraphs` those of the plan that it is, or is a part of."""

    kind: Kind
    tasks: np.ndarray
    steps: tuple[int, ...]
    after: tuple[int, ...] = ()
    subgraphs: tuple[int, ...] = ()


def make_launches(tasks: TaskGraph, persistent: bool, group: int) -> list[Launch]:
    """The launches in an order in which they can run one by one. Memoized subgraphs are cut in groups of at most
    `group` tasks, or, if `persistent`, not at all. Tasks without steps are in none but those of persistent kernels."""
    found = list(_cut(tasks, persistent, group))
    of = [_distinct(tasks.task_subgraph[launch.tasks]) for launch in found]
    waits = _waits(tasks, found)
    return [replace(launch, after=w, subgraphs=s) for launch, w, s in zip(found, waits, of, strict=True)]


def _cut(tasks: TaskGraph, persistent: bool, group: int) -> Iterator[Launch]:
    subgraphs, step_of = tasks.plan.subgraphs, _step_of(tasks)
    for mine in _runs(tasks, persistent):
        subgraph = subgraphs[int(tasks.task_subgraph[mine[0]])]
        if subgraph.strategy == "memoized" and persistent:
            yield Launch("persistent", mine, _distinct(step_of[mine]))
        elif subgraph.strategy in ("padded", "fused"):
            nodes = set(subgraph.members)
            steps = tuple(i for i, s in enumerate(tasks.steps) if s.node in nodes)
            yield Launch("bricks" if subgraph.strategy == "padded" else "fused", mine, steps)
        else:
            size = group if subgraph.strategy == "memoized" else len(mine)
            for start in range(0, len(mine), size):
                yield from _by_node(mine[start : start + size], step_of)


def _by_node(mine: np.ndarray, step_of: np.ndarray) -> Iterator[Launch]:
    for i in _distinct(step_of[mine]):
        yield Launch("layer", mine[step_of[mine] == i], (i,))


def _distinct(numbers: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unique(numbers) if i >= 0)


def _step_of(tasks: TaskGraph) -> np.ndarray:
    """Per task the index of its steps (of padded bricks the last), -1 for those without, [tasks]."""
    step_of = np.full(len(tasks), -1, np.int64)
    for i, steps in enumerate(tasks.steps):
        step_of[steps.tasks] = i
    return step_of


def _runs(tasks: TaskGraph, persistent: bool) -> Iterator[np.ndarray]:
    """The tasks of each subgraph that has any, joins left out; or of a chain of memoized ones, joins included."""
    subgraphs = tasks.plan.subgraphs
    chain, steps = np.zeros(0, np.int64), 0
    for s, mine in _owned(tasks):
        chains = persistent and subgraphs[s].strategy == "memoized"
        more = len(subgraphs[s].nodes)
        if len(chain) and not (chains and steps + more <= CHAIN_STEPS):
            yield chain
            chain, steps = chain[:0], 0
        if chains:
            chain, steps = np.arange(chain[0] if len(chain) else mine[0], mine[-1] + 1), steps + more
        else:
            yield mine
    if len(chain):
        yield chain


def _owned(tasks: TaskGraph) -> Iterator[tuple[int, np.ndarray]]:
    """Each subgraph that has tasks, and these, which follow one another."""
    for s in np.unique(tasks.task_subgraph).tolist():
        if s >= 0:
            yield s, np.flatnonzero(tasks.task_subgraph == s)


def _waits(tasks: TaskGraph, found: list[Launch]) -> list[tuple[int, ...]]:
    """What each launch waits for, through tasks that are in no launch; those that share scratch run in turn."""
    launch_of = np.full(len(tasks), -1, np.int32)
    for k, launch in enumerate(found):
        launch_of[launch.tasks] = k
    beyond = _through(tasks, launch_of)
    needs: list[set[int]] = [set() for _ in found]
    readers, needed = np.repeat(launch_of, np.diff(tasks.dep_offsets)), launch_of[tasks.deps]
    direct = (readers >= 0) & (needed >= 0)
    for k, other in _distinct_pairs(readers[direct], needed[direct]):
        needs[k].add(other)
    rest = (readers >= 0) & (needed < 0)
    for k, task in _distinct_pairs(readers[rest], tasks.deps[rest]):
        needs[k] |= beyond[task]
    bricks = [k for k, launch in enumerate(found) if launch.kind == "bricks"]
    scratch = [k for k in bricks if any(tasks.steps[i].origins for i in found[k].steps)]
    for before, k in pairwise(scratch):
        needs[k].add(before)
    return [tuple(sorted(mine - {k})) for k, mine in enumerate(needs)]


def _distinct_pairs(a: np.ndarray, b: np.ndarray) -> list[tuple[int, int]]:
    """The pairs (a[i], b[i]) of numbers that are not negative, each once, in order. Where there are more of them than
    there could be distinct ones, these are ticked off, which takes less than to sort them."""
    height, width = (int(x.max(initial=0)) + 1 for x in (a, b))
    pairs = a.astype(np.int64) * width + b
    if height * width <= len(pairs):
        there = np.zeros(height * width, bool)
        there[pairs] = True
        distinct = np.flatnonzero(there)
    else:
        distinct = np.unique(pairs)
    high, low = np.divmod(distinct, width)
    return list(zip(high.tolist(), low.tolist(), strict=True))


def _through(tasks: TaskGraph, launch_of: np.ndarray) -> dict[int, set[int]]:
    """Launches that a task which is in none stands for."""
    beyond: dict[int, set[int]] = {}
    for t in np.flatnonzero(launch_of < 0).tolist():
        deps = tasks.deps[tasks.dep_offsets[t] : tasks.dep_offsets[t + 1]]
        inside = np.unique(launch_of[deps])
        beyond[t] = {int(k) for k in inside if k >= 0}.union(*(beyond[d] for d in deps[launch_of[deps] < 0].tolist()))
    return beyond
