"""The records of all tasks as kernels read them: one array, in the order in which tasks are numbered on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.runtime.cuda.schedule.argument_table import KernelRecords
from brickrt.runtime.lowering.record_order import order_records


@dataclass(frozen=True, eq=False)
class TaskTable:
    """`records` of all tasks in order; those of task t begin at word `task_at[t]`, int32 [T + 1]."""

    task_at: np.ndarray
    records: np.ndarray


def make_table(numbered: Sequence[tuple[KernelRecords, int]], place: np.ndarray, tasks: int) -> TaskTable:
    """The records of `tasks` tasks, of which the graph's task t is number `place[t]`. Beside the records of a kernel is
    the number that it has in its launch. Raises BrickError where they are too many."""
    found = order_records([(one.tasks, one.positions, one.words) for one, _ in numbered], place)
    widths = found.widths[found.order]
    starts = np.empty_like(found.widths)
    starts[found.order] = np.cumsum(widths) - widths
    records, step = np.empty(int(found.widths.sum()), np.int64), 0
    for one, number in numbered:
        n, width = one.words.shape
        words = one.words.copy()
        words[:, 0] = number
        records[starts[step : step + n, None] + np.arange(width)] = words
        step += n
    task_at = np.concatenate([[0], np.cumsum(np.bincount(found.tasks, weights=found.widths, minlength=tasks))])
    if task_at[-1] >= 1 << 31:
        raise BrickError("the plan has too many bricks for the CUDA engine: use larger ones with --brick")
    return TaskTable(task_at.astype(np.int32), records)
