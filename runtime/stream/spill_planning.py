"""Which tensors are spilled, by the speed of the disk and the room on it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from dataclasses import replace
from pathlib import Path

from brickrt.graph.errors import BrickError
from brickrt.plan.stream.choose_spills import choose_spills
from brickrt.plan.stream.spill_costs import DiskSpeed, SpillCosts
from brickrt.plan.stream.stream_plan import StreamPlanner
from brickrt.runtime.cache.disk_cache import DiskCache
from brickrt.runtime.files.descriptor import refused
from brickrt.runtime.files.scratch import free_bytes, measured_speed
from brickrt.runtime.stream.stream_report import Spilling

MOST_PLANNED_UNITS = 200  # of all passes, where nothing is spilled: plans of more take seconds
AT_ONCE = DiskSpeed(1e18, 1e18)
REMEMBERED_SECONDS = 3600.0  # what a disk does changes with what else it does, by more than plans depend on


def with_spills(
    planner: StreamPlanner, folder: Path | None, threads: int, sharing: int = 1
) -> tuple[list[StreamPlanner], Spilling | None]:
    """The planners to try, and what was found out about the disk of a folder, whose speed `sharing` processes have
    together. The one that spills into the folder comes first, if that takes less time; behind it others that may take
    less memory: without spills, and with those of a disk that takes no time, so that the least memory hardly depends on
    the disk. In networks of very many passes there is one that spills, as it hardly ever takes more."""
    if folder is None or not planner.may_spill or not folder.is_dir():  # who writes there says that it is missing
        return [planner], None
    try:
        write, read = (speed / sharing for speed in disk_speed(folder))
        free = free_bytes(folder)
    except BrickError as e:
        return [planner], Spilling(str(folder), 0.0, 0.0, 0, str(e))
    costs = SpillCosts.of(planner.plan, planner.network, planner.may_spill, DiskSpeed(write, read), threads)
    sets = list(dict.fromkeys(choose_spills(replace(costs, disk=disk)) for disk in (costs.disk, AT_ONCE)))
    outputs = sum(planner.plan.graph.types[name].nbytes for name in planner.plan.graph.outputs)
    rooms = {names: costs.room([k for k, unit in enumerate(costs.units) if unit.name in names]) for names in sets}
    fitting = [names for names in sets if rooms[names] + outputs <= free or not names]
    why = ""
    if sets[0] not in fitting:
        why = f"takes {rooms[sets[0]] / 2**30:.2f} GiB beside the output's {outputs / 2**30:.2f} GiB"
    few = sum(len(one.computed) for one in costs.passes(())) <= MOST_PLANNED_UNITS
    wanted = sets[:1] if sets[0] in fitting else [()]
    others = [names for names in ((), *fitting) if few or not wanted[0]]
    planners = [planner.spilling(names) if names else planner for names in dict.fromkeys([*wanted, *others])]
    return planners, Spilling(str(folder), write, read, free, why)


def disk_speed(folder: Path) -> tuple[float, float]:
    """Bytes a second that the disk of a folder writes and reads: as they were measured in the last hour, so that
    processes which plan one after the other plan the same; else measured now. Raises BrickError where nothing can be
    written there."""
    with refused(folder):
        device = folder.stat().st_dev
    store = DiskCache.open("disks")
    name = hashlib.sha256(f"{platform.node()} {device}".encode()).hexdigest()[:32]
    if (blob := store.get(name)) is not None and os.access(folder, os.W_OK | os.X_OK):
        when, write, read = json.loads(blob)
        if 0 <= time.time() - when < REMEMBERED_SECONDS:
            return write, read
    write, read = measured_speed(folder)
    store.put(name, json.dumps([time.time(), write, read]).encode())
    return write, read
