"""Where the words lie that compiled workers read: of a run's context and of each worker's own.

`worker_loop.py` says what each is. Nothing here needs the compiler: programs from files use these too.
"""

from __future__ import annotations

EVENT_WORDS = 5
EPOCH, SUMS = 0, range(1, 5)
QUEUES, WORDS, QUEUE_AT, QUEUE, DEP_OFFSETS, DEPS = range(5, 11)
TASK_STEPS, STEP_AT, RECORDS, KERNELS, IO_WORDS, N_IO, CANCEL = range(11, 18)
CONTEXT_WORDS = 18
HOME, BASES, EVENTS, TASKS, FIRST_SEEN, WAITS, REVISITS, PASSED, HEADS = range(9)
COUNTS = TASKS, FIRST_SEEN, WAITS, REVISITS
