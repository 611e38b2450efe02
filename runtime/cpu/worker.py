"""The workers' loop, compiled: take a ticket, wait for dependencies, call the kernels, publish. No Python inside.

It is the protocol of `states.py` (model-checked there) on atomic words. A ticket whose dependencies are not complete is
put aside, at most DEFERRED of them, while the worker computes other tasks, and looked at again. Since tickets are taken
in topological order, the oldest ticket that is not complete can always run: nobody waits for ever.

Records are int64 arrays. The context, shared by all workers of a run:
    0 tasks      1 address of the ticket counter   2 address of the state words    3 word of the epoch (state 0)
    4 dep_offsets   5 deps   6 first step of each task   7 offset of each step's record   8 records   9 kernels
A step's record: kernel, n operands, n × (base, byte offset), then lo, hi of each dimension of its box.
A worker's own: stats = [tasks, complete_first, waits, revisits], events (0 for none) of 5 words a task:
    task, start ns, end ns, times found waiting, worker's revisits so far; and its copy of the table of bases.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

from llvmlite import ir

from brickrt.ops.cpu.compile import Library, to_object
from brickrt.ops.cpu.emit import I32, I64, PTR, VOID, Fn
from brickrt.ops.cpu.isa import Isa
from brickrt.runtime.cpu.cache import digest_of
from brickrt.runtime.disk_cache import DiskCache
from brickrt.runtime.states import COMPLETE, IN_PROGRESS

DEFERRED = 8
MOST_OPERANDS = 64
EVENT_WORDS = 5
TASKS, TICKET, WORDS, EPOCH, DEP_OFFSETS, DEPS, TASK_STEPS, STEP_AT, RECORDS, KERNELS = range(10)
CONTEXT_WORDS = 10
SPINS = 64  # looks before a worker without work gives its core away


class _Worker:
    """Emits `void worker(context, bases, stats, events)`."""

    def __init__(self, module: ir.Module) -> None:
        self.f = f = Fn(module, "worker", (PTR, PTR, PTR, PTR))
        self.context, self.bases, self.stats, self.events = f.fn.args
        fields = [self.word(self.context, k) for k in range(CONTEXT_WORDS)]
        self.tasks, self.epoch = fields[TASKS], fields[EPOCH]
        addresses = [k for k in range(CONTEXT_WORDS) if k not in (TASKS, EPOCH)]
        pointers = {k: f.b.inttoptr(fields[k], I64.as_pointer()) for k in addresses}
        self.ticket, self.words, self.dep_offsets, self.deps = (pointers[k] for k in (TICKET, WORDS, DEP_OFFSETS, DEPS))
        self.task_steps, self.step_at, self.records, self.kernels = (
            pointers[k] for k in (TASK_STEPS, STEP_AT, RECORDS, KERNELS)
        )
        self.deferred = f.local(I64, count=DEFERRED + 1)
        self.waiting = f.local(I64, I64(0))  # entries of `deferred`
        self.exhausted = f.local(I64, I64(0))
        self.operands = f.local(PTR, count=MOST_OPERANDS)
        self.idle = f.local(I64, I64(0))
        self.event = f.local(PTR, self.events)

    # ---- memory

    def word(self, base: ir.Value, k) -> ir.Value:
        return self.f.b.load(self.at(base, k), typ=I64)

    def at(self, base: ir.Value, k) -> ir.Value:
        return self.f.b.gep(base, [self.f.value(k)], source_etype=I64)

    def count(self, k: int, by=1) -> None:
        place = self.at(self.stats, k)
        self.f.b.store(self.f.b.add(self.f.b.load(place, typ=I64), self.f.value(by)), place)

    def state(self, task: ir.Value) -> ir.Value:
        """The task's state in this epoch, read with acquire."""
        f = self.f
        value = f.b.load_atomic(self.at(self.words, task), "acquire", 8, typ=I64)
        current = f.b.icmp_signed(">=", value, self.epoch)
        return f.b.select(current, f.b.sub(value, self.epoch), I64(0))

    # ---- protocol

    def blocked_by(self, task: ir.Value) -> ir.Value:
        """Smallest state among the task's dependencies: COMPLETE where it can run."""
        f = self.f
        least = f.local(I64)
        f.set(least, I64(COMPLETE))
        first, last = self.word(self.dep_offsets, task), self.word(self.dep_offsets, f.b.add(task, I64(1)))
        with f.loop(first, last) as k:
            state = self.state(self.word(self.deps, k))
            f.set(least, f.minimum(f.get(least, I64), state))
        return f.get(least, I64)

    def run(self, task: ir.Value) -> None:
        """Acquires the task, runs its steps, publishes it."""
        f = self.f
        place = self.at(self.words, task)
        old = f.b.load_atomic(place, "monotonic", 8, typ=I64)
        claimed = f.b.cmpxchg(place, old, f.b.add(self.epoch, I64(IN_PROGRESS)), "acq_rel", "monotonic")
        with f.when(f.b.extract_value(claimed, 1)):
            started = self.clock()
            steps = self.word(self.task_steps, task), self.word(self.task_steps, f.b.add(task, I64(1)))
            with f.loop(*steps) as step:
                self.call(self.at(self.records, self.word(self.step_at, step)))
            ended = self.clock()  # before others can see that it has
            f.b.store_atomic(f.b.add(self.epoch, I64(COMPLETE)), place, "release", 8)
            self.count(0)
            self.note(task, started, ended)

    def call(self, record: ir.Value) -> None:
        """One kernel on one box."""
        f = self.f
        kernel, operands = self.word(record, 0), self.word(record, 1)
        with f.loop(0, operands) as k:
            pair = self.at(record, f.add(2, f.mul(k, 2)))
            address = f.b.add(self.word(self.bases, self.word(pair, 0)), self.word(pair, 1))
            place = f.b.gep(self.operands, [k], source_etype=PTR)
            f.b.store(f.b.inttoptr(address, PTR), place)
        box = self.at(record, f.add(2, f.mul(operands, 2)))
        function = f.b.inttoptr(self.word(self.kernels, kernel), ir.FunctionType(VOID, [PTR, PTR]).as_pointer())
        f.b.call(function, [self.operands, box])

    # ---- events

    def clock(self) -> ir.Value:
        """Nanoseconds, or 0 where nobody watches."""
        f = self.f
        now = f.local(I64)
        f.set(now, I64(0))
        with f.when(self.watched()):
            time = f.local(I64, count=2)
            f.intrinsic("clock_gettime", I32, I32(1), time)
            seconds, rest = self.word(time, 0), self.word(time, 1)
            f.set(now, f.b.add(f.b.mul(seconds, I64(10**9)), rest))
        return f.get(now, I64)

    def watched(self) -> ir.Value:
        return self.f.b.icmp_unsigned("!=", self.f.b.ptrtoint(self.events, I64), I64(0))

    def note(self, task: ir.Value, started: ir.Value, ended: ir.Value) -> None:
        f = self.f
        with f.when(self.watched()):
            place = f.get(self.event, PTR)
            values = task, started, ended, self.word(self.stats, 2), self.word(self.stats, 3)
            for k, value in enumerate(values):
                f.b.store(value, self.at(place, k))
            f.set(self.event, self.at(place, EVENT_WORDS))

    # ---- the loop

    def emit(self) -> None:
        f = self.f
        turn, after = f.fn.append_basic_block("turn"), f.fn.append_basic_block("after")
        f.b.branch(turn)
        f.b.position_at_end(turn)
        f.set(self.idle, f.b.add(f.get(self.idle, I64), I64(1)))
        self.revisit()
        self.take()
        self.rest()
        nothing = f.b.icmp_signed("==", f.get(self.waiting, I64), I64(0))
        ended = f.b.icmp_signed("==", f.get(self.exhausted, I64), I64(1))
        f.b.cbranch(f.b.and_(nothing, ended), after, turn)
        f.b.position_at_end(after)
        f.finish()

    def revisit(self) -> None:
        """Runs the deferred tickets that have become ready, and keeps the others in order."""
        f = self.f
        kept = f.local(I64)
        f.set(kept, I64(0))
        with f.loop(0, f.get(self.waiting, I64)) as k:
            task = self.word(self.deferred, k)
            ready = f.b.icmp_signed("==", self.blocked_by(task), I64(COMPLETE))
            with f.b.if_else(ready) as (yes, no):
                with yes:
                    f.set(self.idle, I64(0))
                    self.run(task)
                with no:
                    f.b.store(task, self.at(self.deferred, f.get(kept, I64)))
                    f.set(kept, f.b.add(f.get(kept, I64), I64(1)))
        f.set(self.waiting, f.get(kept, I64))

    def take(self) -> None:
        """Takes a ticket where there is room to put one aside; runs it, or puts it aside."""
        f = self.f
        room = f.b.icmp_signed("<", f.get(self.waiting, I64), I64(DEFERRED))
        more = f.b.icmp_signed("==", f.get(self.exhausted, I64), I64(0))
        with f.when(f.b.and_(room, more)):
            task = f.b.atomic_rmw("add", self.ticket, I64(1), "monotonic")
            real = f.b.icmp_signed("<", task, self.tasks)
            with f.b.if_else(real) as (yes, no):
                with yes:
                    f.set(self.idle, I64(0))
                    self.consider(task)
                with no:
                    f.set(self.exhausted, I64(1))

    def consider(self, task: ir.Value) -> None:
        f = self.f
        least = self.blocked_by(task)
        with f.b.if_else(f.b.icmp_signed("==", least, I64(COMPLETE))) as (ready, blocked):
            with ready:
                self.count(1)
                self.run(task)
            with blocked:
                running = f.b.icmp_signed("==", least, I64(IN_PROGRESS))
                self.count(2, f.b.zext(running, I64))
                self.count(3, f.b.zext(f.b.not_(running), I64))
                f.b.store(task, self.at(self.deferred, f.get(self.waiting, I64)))
                f.set(self.waiting, f.b.add(f.get(self.waiting, I64), I64(1)))

    def rest(self) -> None:
        """A worker that found nothing to do for a while gives its core to others."""
        f = self.f
        tired = f.b.icmp_signed(">", f.get(self.idle, I64), I64(SPINS))
        with f.when(tired):
            f.intrinsic("sched_yield", I32)


@cache
def worker_function(isa: Isa) -> tuple[Callable[..., None], Library]:
    """The compiled loop; calling it releases the GIL. The library must outlive it."""
    store, name = DiskCache.open("kernels"), digest_of(repr(isa), Path(__file__).read_text())
    image = store.get(name)
    if image is None:
        module = ir.Module("worker")
        _Worker(module).emit()
        image = to_object(module, isa)
        store.put(name, image)
    library = Library(isa)
    library.add(image)
    return library.function("worker", *[ctypes.c_void_p] * 4), library
