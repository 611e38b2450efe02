"""The workers' loop, compiled: find a task that is ready, acquire it, call its kernels, publish. No Python inside.

It is the protocol of `state_protocol.py` (model-checked there) on atomic words. Every task has a home: the worker whose share
of a tensor it writes, so that rows stay with the core that has them in its cache. A worker looks through its own queue,
then through the others', each from its first task not started, WINDOW tasks on, and takes the first that is ready.

Records are int64 arrays. The context, shared by all workers of a run:
    0 word of the epoch (state 0)   1…4 sums of what workers count: tasks run; of these, the first looked at; tasks
    waited for; tasks for which others were passed over, not ready
    5 number of queues   6 address of the state words   7 where each queue begins, and the last ends   8 tasks of all
    queues   9 dep_offsets   10 deps   11 first step of each task   12 offset of each step's record   13 records
    14 kernels   15 words that hold the bases of inputs and outputs   16 how many   17 not 0: begin no more tasks
A step's record: kernel, n operands, n × (base, byte offset), then lo, hi of each dimension of its box.
A worker's own: 0 its queue   1 address of its table of bases   2 address of its events (0 for none)   3…6 its counts
    7 how many tasks it passed over last   8… first task not started of each queue.
Events have 5 words a task: task, start ns, end ns (0 while it runs), waits so far, revisits so far.
"""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I32, I64, PTR, VOID
from brickrt.runtime.cpu.argument_table import FIRST, MOST_OPERANDS
from brickrt.runtime.cpu.workers.backoff import rest
from brickrt.runtime.protocol.state_protocol import COMPLETE, IN_PROGRESS

WINDOW = 32  # tasks of a queue that are looked at
EVENT_WORDS = 5
EPOCH, SUMS = 0, range(1, 5)
QUEUES, WORDS, QUEUE_AT, QUEUE, DEP_OFFSETS, DEPS, TASK_STEPS, STEP_AT, RECORDS, KERNELS, ENDS, N_ENDS, CANCEL = range(
    5, 18
)
CONTEXT_WORDS = 18
HOME, BASES, EVENTS, TASKS, FIRST_SEEN, WAITS, REVISITS, PASSED, HEADS = range(9)
COUNTS = TASKS, FIRST_SEEN, WAITS, REVISITS
NOTHING, ENDED = -1, -2  # of a queue: no task is ready; all are started


class _WorkerFunction:
    """A function of the worker's module. Its first argument is the context."""

    def __init__(self, module: ir.Module, name: str, args: tuple[ir.Type, ...], ret: ir.Type = I64) -> None:
        self.f = FunctionEmitter(module, name, (PTR, *args), ret)
        self.context = self.f.fn.args[0]

    def at(self, base: ir.Value, k) -> ir.Value:
        return self.f.b.gep(base, [self.f.value(k)], source_etype=I64)

    def word(self, base: ir.Value, k) -> ir.Value:
        return self.f.b.load(self.at(base, k), typ=I64)

    def field(self, k: int) -> ir.Value:
        return self.word(self.context, k)

    def array(self, k: int) -> ir.Value:
        return self.f.b.inttoptr(self.field(k), I64.as_pointer())

    def row(self, offsets: ir.Value, k: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Where entry k of CSR offsets begins and ends."""
        return self.word(offsets, k), self.word(offsets, self.f.b.add(k, I64(1)))

    def put(self, value, base: ir.Value, k) -> None:
        self.f.b.store(self.f.value(value), self.at(base, k))

    def increase(self, base: ir.Value, k: int, by=1) -> None:
        self.put(self.f.b.add(self.word(base, k), self.f.value(by)), base, k)

    def value_of(self, task: ir.Value) -> ir.Value:
        """The task's word, read with acquire."""
        return self.f.b.load_atomic(self.at(self.array(WORDS), task), "acquire", 8, typ=I64)

    def is_in(self, value: ir.Value, state: int) -> ir.Value:
        """Whether a word says that its task has come to `state` in this epoch."""
        return self.f.b.icmp_signed(">=", value, self.f.b.add(self.field(EPOCH), I64(state)))


class _Ready(_WorkerFunction):
    """`i64 ready(context, task)`: 1 where all that the task waits for is complete. The latest are looked at first."""

    def emit(self) -> None:
        f = self.f
        first, last = self.row(self.array(DEP_OFFSETS), f.fn.args[1])
        with f.loop(0, f.b.sub(last, first)) as k:
            value = self.value_of(self.word(self.array(DEPS), f.b.sub(f.b.sub(last, I64(1)), f.value(k))))
            with f.when(f.b.not_(self.is_in(value, COMPLETE))):
                f.b.ret(I64(0))
        f.b.ret(I64(1))


class _TaskSearch(_WorkerFunction):
    """`i64 search(context, own, queue)`: a task of the queue, acquired; or NOTHING, or ENDED."""

    def emit(self, ready: ir.Function) -> None:
        f = self.f
        own, queue = f.fn.args[1:]
        head = f.b.add(queue, I64(HEADS))
        end = self.word(self.array(QUEUE_AT), f.b.add(queue, I64(1)))
        with f.loop(self.word(own, head), end) as k:
            task = self.word(self.array(QUEUE), k)
            value = self.value_of(task)
            passed = f.b.sub(f.value(k), self.word(own, head))
            with f.b.if_else(self.is_in(value, IN_PROGRESS)) as (started, new):
                with started, f.when(f.b.icmp_signed("==", passed, I64(0))):
                    self.put(f.b.add(f.value(k), I64(1)), own, head)
                with new:
                    self.acquire(ready, own, task, value, passed)
            with f.when(f.b.icmp_signed(">=", passed, I64(WINDOW))):
                f.b.ret(I64(NOTHING))
        f.b.ret(f.b.select(f.b.icmp_signed("<", self.word(own, head), end), I64(NOTHING), I64(ENDED)))

    def acquire(self, ready: ir.Function, own: ir.Value, task: ir.Value, value: ir.Value, passed: ir.Value) -> None:
        """Returns the task where it is ready and nobody else was faster."""
        f = self.f
        with f.when(f.b.icmp_signed("==", f.b.call(ready, [self.context, task]), I64(1))):
            wanted = f.b.add(self.field(EPOCH), I64(IN_PROGRESS))
            claimed = f.b.cmpxchg(self.at(self.array(WORDS), task), value, wanted, "acq_rel", "monotonic")
            with f.when(f.b.extract_value(claimed, 1)):
                self.put(passed, own, PASSED)
                f.b.ret(task)


class _Run(_WorkerFunction):
    """`void run(context, own, task, event)`: the steps of a task; publishes it. `event` is 0, or where to note."""

    def emit(self) -> None:
        f = self.f
        own, task, event = f.fn.args[1:]
        self.bases = f.b.inttoptr(self.word(own, BASES), PTR)
        self.operands = f.local(PTR, count=MOST_OPERANDS)
        started = self.clock(event)
        with f.when(_given(f, event)):
            self.put(task, event, 0)
            self.put(started, event, 1)  # last: it says that the row is used
        with f.loop(*self.row(self.array(TASK_STEPS), task)) as step:
            self.call(self.at(self.array(RECORDS), self.word(self.array(STEP_AT), step)))
        ended = self.clock(event)  # before others can see that it has
        done = f.b.add(self.field(EPOCH), I64(COMPLETE))
        f.b.store_atomic(done, self.at(self.array(WORDS), task), "release", 8)
        self.increase(own, TASKS)
        with f.when(_given(f, event)):
            self.put(self.word(own, WAITS), event, 3)
            self.put(self.word(own, REVISITS), event, 4)
            self.put(ended, event, 2)
        f.b.ret_void()

    def call(self, record: ir.Value) -> None:
        """One kernel on one box."""
        f = self.f
        kernel, operands = self.word(record, 0), self.word(record, 1)
        with f.loop(0, operands) as k:
            pair = self.at(record, f.add(2, f.mul(k, 2)))
            address = f.b.add(self.word(self.bases, self.word(pair, 0)), self.word(pair, 1))
            f.b.store(f.b.inttoptr(address, PTR), f.b.gep(self.operands, [k], source_etype=PTR))
        box = self.at(record, f.add(2, f.mul(operands, 2)))
        kind = ir.FunctionType(VOID, [PTR, PTR]).as_pointer()
        f.b.call(f.b.inttoptr(self.word(self.array(KERNELS), kernel), kind), [self.operands, box])

    def clock(self, event: ir.Value) -> ir.Value:
        """Nanoseconds, or 0 where nobody watches."""
        f = self.f
        now = f.local(I64, I64(0))
        time = f.local(I64, count=2)
        with f.when(_given(f, event)):
            f.intrinsic("clock_gettime", I32, I32(1), time)
            f.set(now, f.b.add(f.b.mul(self.word(time, 0), I64(10**9)), self.word(time, 1)))
        return f.get(now, I64)


class _Worker(_WorkerFunction):
    """`void worker(context, own)`: runs tasks until all are started, or the run is cancelled."""

    def emit(self, search: ir.Function, run: ir.Function) -> None:
        f = self.f
        self.own = f.fn.args[1]
        self.shared = f.b.inttoptr(f.b.ptrtoint(self.context, I64), I64.as_pointer())
        self.idle, self.ended = f.local(I64, I64(0)), f.local(I64)
        self.event = f.local(PTR, f.b.inttoptr(self.word(self.own, EVENTS), PTR))
        self.begin()
        turn = f.fn.append_basic_block("turn")
        f.b.branch(turn)
        f.b.position_at_end(turn)
        cancelled = f.b.load_atomic(self.at(self.shared, CANCEL), "monotonic", 8, typ=I64)
        with f.when(f.b.icmp_signed("!=", cancelled, I64(0))):
            self.leave()
        self.look_through(search, run, turn)
        with f.when(f.b.icmp_signed("==", f.get(self.ended, I64), I64(1))):
            self.leave()
        f.set(self.idle, f.b.add(f.get(self.idle, I64), I64(1)))
        rest(f, f.get(self.idle, I64))
        f.b.branch(turn)

    def leave(self) -> None:
        """Adds up what the worker counted, and returns."""
        for k, total in zip(COUNTS, SUMS, strict=True):
            self.f.b.atomic_rmw("add", self.at(self.shared, total), self.word(self.own, k), "monotonic")
        self.f.b.ret_void()

    def begin(self) -> None:
        """The worker's own memory at the beginning of a run."""
        f = self.f
        for k in COUNTS:
            self.put(0, self.own, k)
        with f.loop(0, self.field(N_ENDS)) as k:
            address = self.word(f.b.inttoptr(self.word(self.array(ENDS), k), PTR), 0)
            self.put(address, f.b.inttoptr(self.word(self.own, BASES), PTR), f.add(k, FIRST))
        with f.loop(0, self.field(QUEUES)) as q:
            self.put(self.word(self.array(QUEUE_AT), q), self.own, f.add(q, HEADS))

    def look_through(self, search: ir.Function, run: ir.Function, turn: ir.Block) -> None:
        """Runs a task of the nearest queue that has one ready, and takes a new turn; else notes whether all ended."""
        f = self.f
        f.set(self.ended, I64(1))
        with f.loop(0, self.field(QUEUES)) as distance:
            queue = f.b.urem(f.b.add(self.word(self.own, HOME), f.value(distance)), self.field(QUEUES))
            found = f.b.call(search, [self.context, self.own, queue])
            with f.when(f.b.icmp_signed(">=", found, I64(0))):
                self.found(run, found, distance)
                f.b.branch(turn)
            with f.when(f.b.icmp_signed("==", found, I64(NOTHING))):
                f.set(self.ended, I64(0))

    def found(self, run: ir.Function, task: ir.Value, distance: ir.Value) -> None:
        f = self.f
        waited = f.b.icmp_signed(">", f.get(self.idle, I64), I64(0))
        over = f.b.icmp_signed(">", f.b.add(f.value(distance), self.word(self.own, PASSED)), I64(0))
        kinds = {FIRST_SEEN: f.b.or_(waited, over), WAITS: f.b.not_(waited), REVISITS: f.b.or_(waited, f.b.not_(over))}
        for k, other in kinds.items():
            self.increase(self.own, k, f.b.zext(f.b.not_(other), I64))
        f.set(self.idle, I64(0))
        event = f.get(self.event, PTR)
        f.b.call(run, [self.context, self.own, task, event])
        with f.when(_given(f, event)):
            f.set(self.event, self.at(event, EVENT_WORDS))


def _given(f: FunctionEmitter, place: ir.Value) -> ir.Value:
    return f.b.icmp_unsigned("!=", f.b.ptrtoint(place, I64), I64(0))


def worker_module() -> ir.Module:
    """The module with `worker` and what it calls."""
    module = ir.Module("worker")
    ready = _Ready(module, "ready", (I64,))
    search = _TaskSearch(module, "search", (PTR, I64))
    run = _Run(module, "run", (PTR, I64, PTR), VOID)
    worker = _Worker(module, "worker", (PTR,), VOID)
    ready.emit()
    search.emit(ready.f.fn)
    run.emit()
    worker.emit(search.f.fn, run.f.fn)
    for one in (ready, search, run):
        one.f.fn.linkage = "internal"
    return module
