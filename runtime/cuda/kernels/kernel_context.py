"""What a kernel gets to know: one block of words, an argument of each launch, defined here and nowhere else.

`context_header.py` generates the C++ struct from the fields below, `schedule.cuh` reads it. All fields are words of 8
bytes. They stay as they are for the life of a program, so that captured launches may hold them; what changes from run
to run lies behind them.

Words of a step's record: kernel; operands | rank << 32; then one word per operand (the output first), base << 56 |
offset in bytes mod 2^56 (offsets may be negative); then one per dimension of the box, lo | hi << 32. The records of a
task's steps follow each other in the order in which they run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from brickrt.ops.cuda.shared_memory import BLOCK_KEPT_BYTES

SCRATCH, ARENA, CONSTANTS, FIRST_IO = range(4)
"""Bases: scratch of the block's slot, arena, constants, then the graph's inputs and outputs."""
BASE_SHIFT = 56
MOST_BASES = 1 << 64 - BASE_SHIFT
MOST_OPERANDS = 64
MOST_RANK = 16
MOST_TASKS = 1 << 30  # a number fits in the word that says why blocks stopped
HEAD_WORDS = 2  # of a record, before its operands
HELD = 4  # tickets of tasks not ready that a block holds before it waits
LAST_EPOCH = (1 << 30) - 1
"""State words have 32 bits: after the run of this epoch, clear `words` and `tickets`, and begin again at 1."""
TICKET_WORDS = 2
"""Words of a launch: runs ended << 32 | tickets taken in this run, whose epoch is runs ended + 1; blocks that left."""
EVENT_WORDS = 5
"""Words of a task's row: block, start and end in ns of the device's clock, the block's waits and revisits so far."""
COUNTS = 4
"""Sums of a launch over all runs: tasks; complete at first sight; waited for; run before older ones (`Counts`)."""
BEGUN = COUNTS
"""The word behind a launch's sums: how often it has begun. Its first block tells the host at once, since after a fault
nothing on the device can be read any more."""
COUNT_WORDS = COUNTS + 1
SHARED_BYTES = BLOCK_KEPT_BYTES
"""Dynamic shared memory that a block keeps for itself; what kernels ask for comes on top."""

RUNNING, CANCELLED, HUNG, STARTED_TWICE = range(4)


def _word(ctype: str, text: str) -> int:
    return field(default=0, metadata={"ctype": ctype, "text": text})  # type: ignore[no-any-return]


@dataclass
class Context:
    """Addresses are of device memory but for `told`. T tasks, L launches."""

    bases: int = _word("char* const*", "where each base begins; scratch: that of slot 0")
    task_at: int = _word("const int*", "[T + 1] where the records of a task's steps begin, in words")
    records: int = _word("const long long*", "of all steps, see kernel_context.py")
    dep_offsets: int = _word("const int*", "[T + 1] task t waits for deps[dep_offsets[t]] … before dep_offsets[t + 1]")
    deps: int = _word("const int*", "tasks of the same launch, each smaller than the one that waits")
    words: int = _word("unsigned int*", "[T] epoch · 4 + state")
    tickets: int = _word("unsigned long long*", "[L, 2] runs ended << 32 | tickets taken; blocks that have left")
    counts: int = _word("unsigned long long*", "[L, 5] tasks, complete at first sight, waited for, revisited; begun")
    stop: int = _word("unsigned long long*", "not 0: begin no more tasks; reason | task << 4 | dependency << 34")
    told: int = _word(
        "unsigned long long*", "of the host: [1 + L · 5] stop; counts when a launch has ended, begun when it begins"
    )
    events: int = _word("long long* const*", "where the rows [T, 5] are: block, start, end, waits, revisits; or null")
    scratch_stride: int = _word("long long", "bytes from a slot's scratch to the next one's")
    spin_limit: int = _word("long long", "looks in vain after which a block gives up; 0: never")
    checked: int = _word("long long", "not 0: what a block notes of a task is on the host before it goes on")

    def pack(self) -> np.ndarray:
        """The words, int64 [fields]."""
        return np.array([getattr(self, f.name) for f in fields(self)], np.uint64).view(np.int64)

    @staticmethod
    def position(name: str) -> int:
        """Index of a field's word."""
        return [f.name for f in fields(Context)].index(name)


CONTEXT_WORDS = len(fields(Context))


def why_stopped(word: int) -> str | None:
    """What the word at `Context.stop` says, in one line; None while nothing stopped."""
    reason, task, dep = word & 15, word >> 4 & MOST_TASKS - 1, word >> 34 & MOST_TASKS - 1
    return {
        RUNNING: None,
        CANCELLED: "cancelled",
        HUNG: f"task {task} waited in vain for task {dep}",
        STARTED_TWICE: f"task {task} was started twice in one run",
    }[reason]
