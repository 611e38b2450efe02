"""The order of records: those of a task follow each other by their positions in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Records = tuple[np.ndarray, np.ndarray, np.ndarray]  # tasks [n], positions [n], words of each record [n, words]


@dataclass(frozen=True, eq=False)
class RecordOrder:
    """Records of several groups, one group after the other: their tasks and widths in words, [records].

    `order` are their indices as they run: by task, then by position in it.
    """

    tasks: np.ndarray
    widths: np.ndarray
    order: np.ndarray


def order_records(groups: Sequence[Records], number: np.ndarray | None = None) -> RecordOrder:
    """The order of the records of all groups; with `number`, task t counts as number[t]."""
    none = np.zeros(0, np.int64)
    tasks = np.concatenate([none, *(tasks for tasks, _, _ in groups)])
    positions = np.concatenate([none, *(positions for _, positions, _ in groups)])
    widths = np.concatenate([none, *(np.full(len(words), words.shape[1]) for _, _, words in groups)])
    tasks = tasks if number is None else number[tasks]
    return RecordOrder(tasks, widths, np.lexsort((positions, tasks)))
