"""The workers' loop, compiled: find a task that is ready, acquire it, call its kernels, publish. No Python inside.

It follows a protocol on the tasks' state words, of which the tests check a model in all interleavings. Every task has a
home: the worker whose share of a tensor it writes, so that rows stay with the core that has them in its cache. A worker
looks through its own queue, then through the others', each from its first task not started, WINDOW tasks on, and takes
the first that is ready.

Records are int64 arrays. The context, shared by all workers of a run:
    0 word of the epoch (state 0)   1…4 sums of what workers count: tasks run; of these, the first looked at; tasks
    waited for; tasks for which others were passed over, not ready
    5 number of queues   6 address of the state words   7 where each queue begins, and the last ends   8 tasks of all
    queues   9 dep_offsets   10 deps   11 first step of each task   12 offset of each step's record   13 records
    14 kernels   15 words that hold the bases of inputs and outputs   16 how many   17 not 0: begin no more tasks
A step's record: kernel, n operands, n × (base, byte offset), then lo, hi of each dimension of its box.
A worker's own: 0 its queue   1 address of its table of bases   2 address of its events (0 for none)   3…6 its counts
    7 how many tasks it passed over last   8… first task not started of each queue.
Before a worker's scratch: 0 a word of the kernel that ran last, for what it keeps in its workspace; 0 where that is
nothing   1 that kernel.
Events have 5 words a task: task, start ns, end ns (0 while it runs), waits so far, revisits so far.
"""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import I64, PTR, Index
from brickrt.runtime.cpu.argument_table import FIRST, MOST_OPERANDS
from brickrt.runtime.cpu.compile.native_function import NativeFunction
from brickrt.runtime.cpu.workers.backoff import rest
from brickrt.runtime.cpu.workers.context_words import (
    BASES,
    CANCEL,
    COUNTS,
    DEP_OFFSETS,
    DEPS,
    EPOCH,
    EVENT_WORDS,
    EVENTS,
    FIRST_SEEN,
    HEADS,
    HOME,
    IO_WORDS,
    KERNELS,
    N_IO,
    PASSED,
    QUEUE,
    QUEUE_AT,
    QUEUES,
    RECORDS,
    REVISITS,
    STEP_AT,
    SUMS,
    TASK_STEPS,
    TASKS,
    WAITS,
    WORDS,
)
from brickrt.runtime.cpu.working_memory import KEPT_FOR, LAST_KERNEL, SCRATCH, SCRATCH_HEAD
from brickrt.runtime.state_words import COMPLETE, IN_PROGRESS

WINDOW = 32  # tasks of a queue that are looked at
NOTHING, ENDED = -1, -2  # of a queue: no task is ready; all are started


class _WorkerFunction(NativeFunction):
    """A function of the worker's module; its context is that of the run."""

    def row(self, offsets: ir.Value, k: Index) -> tuple[ir.Value, ir.Value]:
        """Where entry k of CSR offsets begins and ends."""
        return self.word(offsets, k), self.word(offsets, self.b.add(k, I64(1)))

    def increase(self, base: ir.Value, k: int, by: Index = 1) -> None:
        self.put(self.b.add(self.word(base, k), self.value(by)), base, k)

    def state_word(self, task: ir.Value) -> ir.Value:
        """The task's word, read with acquire."""
        return self.acquire_word(self.array(WORDS), task)

    def kept(self, own: ir.Value) -> ir.Value:
        """The words before a worker's scratch."""
        scratch = self.word(self.b.inttoptr(self.word(own, BASES), PTR), SCRATCH)
        return self.b.inttoptr(self.b.sub(scratch, I64(SCRATCH_HEAD)), PTR)

    def is_given(self, event: ir.Value) -> ir.Value:
        """Whether there is a row of events to fill in."""
        return self.b.icmp_unsigned("!=", self.b.ptrtoint(event, I64), I64(0))

    def is_in(self, value: ir.Value, state: int) -> ir.Value:
        """Whether a word says that its task has come to `state` in this epoch."""
        return self.b.icmp_signed(">=", value, self.b.add(self.field(EPOCH), I64(state)))


class _Ready(_WorkerFunction):
    """`i64 ready(context, task)`: 1 where all that the task waits for is complete. The latest are looked at first."""

    def emit(self) -> None:
        first, last = self.row(self.array(DEP_OFFSETS), self.fn.args[1])
        with self.loop(0, self.b.sub(last, first)) as k:
            value = self.state_word(self.word(self.array(DEPS), self.b.sub(self.b.sub(last, I64(1)), self.value(k))))
            with self.when(self.b.not_(self.is_in(value, COMPLETE))):
                self.b.ret(I64(0))
        self.b.ret(I64(1))


class _TaskSearch(_WorkerFunction):
    """`i64 search(context, own, queue)`: a task of the queue, acquired; or NOTHING, or ENDED."""

    def emit(self, ready: ir.Function) -> None:
        own, queue = self.fn.args[1:]
        head = self.b.add(queue, I64(HEADS))
        end = self.word(self.array(QUEUE_AT), self.b.add(queue, I64(1)))
        with self.loop(self.word(own, head), end) as k:
            task = self.word(self.array(QUEUE), k)
            value = self.state_word(task)
            passed = self.b.sub(self.value(k), self.word(own, head))
            with self.b.if_else(self.is_in(value, IN_PROGRESS)) as (started, new):
                with started, self.when(self.b.icmp_signed("==", passed, I64(0))):
                    self.put(self.b.add(self.value(k), I64(1)), own, head)
                with new:
                    self.acquire(ready, own, task, value, passed)
            with self.when(self.b.icmp_signed(">=", passed, I64(WINDOW))):
                self.b.ret(I64(NOTHING))
        self.b.ret(self.b.select(self.b.icmp_signed("<", self.word(own, head), end), I64(NOTHING), I64(ENDED)))

    def acquire(self, ready: ir.Function, own: ir.Value, task: ir.Value, value: ir.Value, passed: ir.Value) -> None:
        """Returns the task where it is ready and nobody else was faster."""
        with self.when(self.b.icmp_signed("==", self.b.call(ready, [self.context, task]), I64(1))):
            wanted = self.b.add(self.field(EPOCH), I64(IN_PROGRESS))
            with self.when(self.swap_word(self.array(WORDS), task, value, wanted, "monotonic")):
                self.put(passed, own, PASSED)
                self.b.ret(task)


class _Run(_WorkerFunction):
    """`void run(context, own, task, event)`: the steps of a task; publishes it. `event` is 0, or where to note."""

    def emit(self) -> None:
        own, task, event = self.fn.args[1:]
        self.bases = self.b.inttoptr(self.word(own, BASES), PTR)
        self.before = self.kept(own)
        self.operands = self.local(PTR, count=MOST_OPERANDS)
        started = self.time(event)
        with self.when(self.is_given(event)):
            self.put(task, event, 0)
            self.put(started, event, 1)  # last: it says that the row is used
        with self.loop(*self.row(self.array(TASK_STEPS), task)) as step:
            self.call(self.at(self.array(RECORDS), self.word(self.array(STEP_AT), step)))
        ended = self.time(event)  # before others can see that it has
        done = self.b.add(self.field(EPOCH), I64(COMPLETE))
        self.release_word(done, self.array(WORDS), task)
        self.increase(own, TASKS)
        with self.when(self.is_given(event)):
            self.put(self.word(own, WAITS), event, 3)
            self.put(self.word(own, REVISITS), event, 4)
            self.put(ended, event, 2)
        self.finish()

    def call(self, record: ir.Value) -> None:
        """One kernel on one box."""
        kernel, operands = self.word(record, 0), self.word(record, 1)
        with self.when(self.b.icmp_signed("!=", kernel, self.word(self.before, LAST_KERNEL))):
            self.put(0, self.before, KEPT_FOR)
            self.put(kernel, self.before, LAST_KERNEL)
        with self.loop(0, operands) as k:
            pair = self.at(record, self.add(2, self.mul(k, 2)))
            address = self.b.add(self.word(self.bases, self.word(pair, 0)), self.word(pair, 1))
            self.b.store(self.b.inttoptr(address, PTR), self.b.gep(self.operands, [k], source_etype=PTR))
        box = self.at(record, self.add(2, self.mul(operands, 2)))
        self.call_kernel(self.word(self.array(KERNELS), kernel), self.operands, box)

    def time(self, event: ir.Value) -> ir.Value:
        """Nanoseconds, or 0 where nobody watches."""
        now = self.local(I64, I64(0))
        with self.when(self.is_given(event)):
            self.set(now, self.clock())
        return self.get(now, I64)


class _Worker(_WorkerFunction):
    """`void worker(context, own)`: runs tasks until all are started, or the run is cancelled."""

    def emit(self, search: ir.Function, run: ir.Function) -> None:
        self.own = self.fn.args[1]
        self.shared = self.typed(self.context)
        self.idle, self.ended = self.local(I64, I64(0)), self.local(I64)
        self.event = self.local(PTR, self.b.inttoptr(self.word(self.own, EVENTS), PTR))
        self.begin()
        turn = self.enter("turn")
        cancelled = self.b.load_atomic(self.at(self.shared, CANCEL), "monotonic", 8, typ=I64)
        with self.when(self.b.icmp_signed("!=", cancelled, I64(0))):
            self.leave()
        self.look_through(search, run, turn)
        with self.when(self.b.icmp_signed("==", self.get(self.ended, I64), I64(1))):
            self.leave()
        self.set(self.idle, self.b.add(self.get(self.idle, I64), I64(1)))
        rest(self, self.get(self.idle, I64))
        self.b.branch(turn)

    def leave(self) -> None:
        """Adds up what the worker counted, and returns."""
        for k, total in zip(COUNTS, SUMS, strict=True):
            self.b.atomic_rmw("add", self.at(self.shared, total), self.word(self.own, k), "monotonic")
        self.finish()

    def begin(self) -> None:
        """The worker's own memory at the beginning of a run."""
        for k in COUNTS:
            self.put(0, self.own, k)
        self.put(-1, self.kept(self.own), LAST_KERNEL)  # none
        with self.loop(0, self.field(N_IO)) as io:
            address = self.word(self.b.inttoptr(self.word(self.array(IO_WORDS), io), PTR), 0)
            self.put(address, self.b.inttoptr(self.word(self.own, BASES), PTR), self.add(io, FIRST))
        with self.loop(0, self.field(QUEUES)) as q:
            self.put(self.word(self.array(QUEUE_AT), q), self.own, self.add(q, HEADS))

    def look_through(self, search: ir.Function, run: ir.Function, turn: ir.Block) -> None:
        """Runs a task of the nearest queue that has one ready, and takes a new turn; else notes whether all ended."""
        self.set(self.ended, I64(1))
        with self.loop(0, self.field(QUEUES)) as distance:
            queue = self.b.urem(self.b.add(self.word(self.own, HOME), self.value(distance)), self.field(QUEUES))
            found = self.b.call(search, [self.context, self.own, queue])
            with self.when(self.b.icmp_signed(">=", found, I64(0))):
                self.found(run, found, distance)
                self.b.branch(turn)
            with self.when(self.b.icmp_signed("==", found, I64(NOTHING))):
                self.set(self.ended, I64(0))

    def found(self, run: ir.Function, task: ir.Value, distance: ir.Value) -> None:
        """Runs the task, and counts how it was found."""
        waited = self.b.icmp_signed(">", self.get(self.idle, I64), I64(0))
        over = self.b.icmp_signed(">", self.b.add(self.value(distance), self.word(self.own, PASSED)), I64(0))
        kinds = {
            FIRST_SEEN: self.b.or_(waited, over),
            WAITS: self.b.not_(waited),
            REVISITS: self.b.or_(waited, self.b.not_(over)),
        }
        for k, other in kinds.items():
            self.increase(self.own, k, self.b.zext(self.b.not_(other), I64))
        self.set(self.idle, I64(0))
        event = self.get(self.event, PTR)
        self.b.call(run, [self.context, self.own, task, event])
        with self.when(self.is_given(event)):
            self.set(self.event, self.at(event, EVENT_WORDS))


def worker_module() -> ir.Module:
    """The module with `worker` and what it calls."""
    module = ir.Module("worker")
    ready = _Ready(module, "ready", I64, ret=I64)
    search = _TaskSearch(module, "search", PTR, I64, ret=I64)
    run = _Run(module, "run", PTR, I64, PTR)
    worker = _Worker(module, "worker", PTR)
    ready.emit()
    search.emit(ready.fn)
    run.emit()
    worker.emit(search.fn, run.fn)
    for one in (ready, search, run):
        one.fn.linkage = "internal"
    return module
