"""Which tensors are spilled, by the speed of the disk and the room on it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from pathlib import Path

from brickrt.graph.errors import BrickError
from brickrt.plan.stream.choose_spills import choose_spills
from brickrt.plan.stream.spill_costs import DiskSpeed, SpillCosts
from brickrt.plan.stream.stream_plan import StreamPlanner
from brickrt.runtime.cache.disk_cache import DiskCache
from brickrt.runtime.files.descriptor import refused
from brickrt.runtime.files.scratch import free_bytes, measured_speed
from brickrt.runtime.stream.stream_report import Spilling

RECOMPUTED = 200  # units of all passes, where nothing is spilled: plans of more take seconds
REMEMBERED = 3600.0  # seconds: what a disk does changes with what else it does, by more than plans depend on


def with_spills(
    planner: StreamPlanner, folder: Path | None, threads: int, sharing: int = 1
) -> tuple[list[StreamPlanner], Spilling | None]:
    """The planners to try, the one that spills into a folder first, if that takes less time, and what was found out
    about the disk, whose speed `sharing` processes have together. In networks of very many passes that one is the only
    one: it hardly ever takes more memory."""
    if folder is None or not planner.may_spill or not folder.is_dir():  # who writes there says that it is missing
        return [planner], None
    try:
        write, read = (speed / sharing for speed in disk_speed(folder))
        free = free_bytes(folder)
    except BrickError as e:
        return [planner], Spilling(str(folder), 0.0, 0.0, 0, str(e))
    costs = SpillCosts.of(planner.plan, planner.network, planner.may_spill, DiskSpeed(write, read), threads)
    names = choose_spills(costs)
    outputs = sum(planner.plan.graph.types[name].nbytes for name in planner.plan.graph.outputs)
    room = costs.room([k for k, unit in enumerate(costs.units) if unit.name and unit.name in names])
    if names and room + outputs > free:
        why = f"takes {room / 2**30:.2f} GiB beside the output's {outputs / 2**30:.2f} GiB"
        return [planner], Spilling(str(folder), write, read, free, why)
    few = sum(len(one.computed) for one in costs.passes(())) <= RECOMPUTED
    planners = ([planner.spilling(names)] if names else []) + ([planner] if few or not names else [])
    return planners, Spilling(str(folder), write, read, free)


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
        if 0 <= time.time() - when < REMEMBERED:
            return write, read
    write, read = measured_speed(folder)
    store.put(name, json.dumps([time.time(), write, read]).encode())
    return write, read
