"""All that a program consists of, before kernels are compiled and memory is taken: launches, records, tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.runtime.cuda.driver.protocol import Driver
from brickrt.runtime.cuda.groups.cudnn_launches import LibraryCalls, calls_of
from brickrt.runtime.cuda.groups.group_search import find_groups
from brickrt.runtime.cuda.groups.group_steps import GroupSteps
from brickrt.runtime.cuda.program_tables import ProgramTables, Units, make_tables
from brickrt.runtime.cuda.schedule.argument_table import ArgumentTable
from brickrt.runtime.cuda.schedule.launches import Launch, make_launches
from brickrt.runtime.lowering.owned_constants import OwnedConstants
from brickrt.runtime.lowering.task_graph import TaskGraph
from brickrt.runtime.program_protocol import LaunchMode

WAVES = 2  # tasks of a group of memoized bricks, per node, in multiples of the device's multiprocessors


@dataclass(frozen=True)
class CudaOptions:
    """How plans are launched: see `launches.py`; "graph" and "persistent" as one captured graph, "auto" as the latter;
    "streams" from the host by a schedule, "dynamic" from the host as launches end.

    `group` is the most tasks of a group of memoized bricks, and of padded bricks that cuDNN computes; None: by the
    device's size. `library`: cuDNN computes products of whole layers and of padded bricks where it is present."""

    launch: LaunchMode = "auto"
    group: int | None = None
    library: bool = True


@dataclass(frozen=True, eq=False)
class Blueprint:
    """Launches, in an order in which they can run, the library's `calls` among them, and their texts and tables.

    `arena_bytes` are those of the arena with the buffers of groups of bricks. Task t of the launches is task `owner[t]`
    of the graph, or a part of it. `extra` are steps of groups, whose indices follow those of the graph's steps.
    """

    tasks: TaskGraph
    launches: Sequence[Launch]
    calls: LibraryCalls
    arena_bytes: int
    owner: np.ndarray
    arguments: ArgumentTable
    units: Units
    tables: ProgramTables
    extra: Sequence[GroupSteps]


def draw_up(
    tasks: TaskGraph, driver: Driver, options: CudaOptions, constants: dict[str, np.ndarray] | None = None
) -> Blueprint:
    """The blueprint of a program. Takes over `constants`, see `OwnedConstants`. Raises BrickError where the engine
    cannot run the task graph."""
    values, library = OwnedConstants(tasks, constants), driver.library() if options.library else None
    nodes = max((len(subgraph.nodes) for subgraph in tasks.plan.subgraphs), default=1)
    group = options.group or WAVES * driver.spec.cores * nodes
    launches = make_launches(tasks, options.launch in ("auto", "persistent"), group)
    groups = find_groups(tasks, launches, library, options.group)
    calls = calls_of(tasks, groups, library, values)
    arguments = ArgumentTable(tasks, calls.steps | groups.skipped, groups.extra, values)
    units = Units(arguments, groups.launches, driver.threads)
    tables = make_tables(tasks, groups.launches, units.numbered)
    return Blueprint(
        tasks, groups.launches, calls, groups.arena, groups.owner(len(tasks)), arguments, units, tables, groups.extra
    )
