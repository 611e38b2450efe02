"""A model of the protocol by which workers run tasks; `runtime/cpu/workers/worker_loop.py` is the same in LLVM IR.

Tasks are in queues, one per worker, each in topological order. A worker takes the first task that is ready from its own
queue, or else from another's. `WorkerProtocol` has one method per atomic step; `model_checker.py` runs it in every
interleaving.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from brickrt.runtime.state_words import COMPLETE, IN_PROGRESS, NOT_STARTED, word


def state_of(value: int, epoch: int) -> int:
    """What a word says to a run of `epoch`, which is at least the epoch of the word."""
    return max(value - word(epoch, NOT_STARTED), NOT_STARTED)


class Shared(NamedTuple):
    """Memory that all workers see. `begun` and `ended` count runs of each task: the observer's, not the protocol's.

    `tickets` is a counter for protocols that have one.
    """

    words: tuple[int, ...]
    begun: tuple[int, ...]
    ended: tuple[int, ...]
    tickets: int = 0

    @staticmethod
    def start(words: tuple[int, ...], tickets: int = 0) -> Shared:
        return Shared(words, (0,) * len(words), (0,) * len(words), tickets)

    def stored(self, task: int, value: int) -> Shared:
        return self._replace(words=(*self.words[:task], value, *self.words[task + 1 :]))

    def begins(self, task: int) -> Shared:
        return self._replace(begun=_count(self.begun, task))

    def ends(self, task: int) -> Shared:
        return self._replace(ended=_count(self.ended, task))


class WorkerMemory(NamedTuple):
    """One worker's own memory. `step` names the method of `WorkerProtocol` it executes next, or "stop".

    It looks at place `slot` of the queue `distance` after its own; `heads` are the first tasks of each queue that it
    has not seen started.
    """

    home: int = 0
    heads: tuple[int, ...] = ()
    step: str = "look"
    distance: int = 0
    slot: int = 0
    dep: int = 0
    seen: int = 0


@dataclass(frozen=True)
class WorkerProtocol:
    """Runs the tasks of `queues`; a task listed twice is run by whoever acquires it first.

    `deps[t]` are the tasks that t reads. A worker goes through its own queue, then the others, each from its head on
    and at most `window` tasks beyond, until it finds a task that is not started and reads only complete ones; after
    that it begins anew. It stops when all heads are at the end. No deadlock: of the tasks not complete, the earliest
    in topological order reads only complete ones, and all before it in its queue are started: a worker that is not
    busy comes to it.
    """

    deps: tuple[tuple[int, ...], ...]
    queues: tuple[tuple[int, ...], ...]
    epoch: int = 1
    window: int = 4

    def memory(self, words: tuple[int, ...]) -> Shared:
        """What all workers see before the first step."""
        return Shared.start(words)

    def start(self, worker: int) -> WorkerMemory:
        """A worker before its first step."""
        return self.anew(WorkerMemory(worker % len(self.queues), (0,) * len(self.queues)))

    def look(self, shared: Shared, me: WorkerMemory) -> tuple[Shared, WorkerMemory]:
        """Acquire-load of a task's word."""
        task, queue = self.task(me), self.queue(me)
        if self.state(shared, task) == NOT_STARTED:
            ready = me._replace(step="acquire", seen=shared.words[task])
            return shared, ready._replace(step="check", dep=len(self.deps[task]) - 1) if self.deps[task] else ready
        if me.slot == me.heads[queue]:
            me = me._replace(heads=(*me.heads[:queue], me.slot + 1, *me.heads[queue + 1 :]))
        return shared, self.go_on(me)

    def check(self, shared: Shared, me: WorkerMemory) -> tuple[Shared, WorkerMemory]:
        """Acquire-load of the word of one dependency, the latest first."""
        if self.state(shared, self.deps[self.task(me)][me.dep]) != COMPLETE:
            return shared, self.go_on(me)
        return shared, me._replace(step="check", dep=me.dep - 1) if me.dep else me._replace(step="acquire")

    def acquire(self, shared: Shared, me: WorkerMemory) -> tuple[Shared, WorkerMemory]:
        """Compare-and-swap of the task's own word to in progress."""
        task = self.task(me)
        if shared.words[task] != me.seen:
            return shared, self.go_on(me)
        return self.store(shared, task, IN_PROGRESS), me._replace(step="begin")

    def begin(self, shared: Shared, me: WorkerMemory) -> tuple[Shared, WorkerMemory]:
        """The kernel starts to read its inputs."""
        return shared.begins(self.task(me)), me._replace(step="end")

    def end(self, shared: Shared, me: WorkerMemory) -> tuple[Shared, WorkerMemory]:
        """The kernel has written its output."""
        return shared.ends(self.task(me)), me._replace(step="publish")

    def publish(self, shared: Shared, me: WorkerMemory) -> tuple[Shared, WorkerMemory]:
        """Release-store of complete."""
        return self.store(shared, self.task(me), COMPLETE), self.anew(me)

    def state(self, shared: Shared, task: int) -> int:
        return state_of(shared.words[task], self.epoch)

    def store(self, shared: Shared, task: int, state: int) -> Shared:
        return shared.stored(task, word(self.epoch, state))

    def queue(self, me: WorkerMemory) -> int:
        return (me.home + me.distance) % len(self.queues)

    def task(self, me: WorkerMemory) -> int:
        return self.queues[self.queue(me)][me.slot]

    def go_on(self, me: WorkerMemory) -> WorkerMemory:
        """To the next place of the queue, or to the next queue."""
        queue, slot = self.queue(me), me.slot + 1
        if slot < len(self.queues[queue]) and slot - me.heads[queue] <= self.window:
            return me._replace(step="look", slot=slot, dep=0, seen=0)
        return self.enter(me, me.distance + 1)

    def enter(self, me: WorkerMemory, distance: int) -> WorkerMemory:
        """To the head of the first queue from `distance` on that has tasks left; after the last one from the start."""
        for further in range(distance, len(self.queues)):
            queue = (me.home + further) % len(self.queues)
            if me.heads[queue] < len(self.queues[queue]):
                return WorkerMemory(me.home, me.heads, distance=further, slot=me.heads[queue])
        ended = all(head == len(queue) for head, queue in zip(me.heads, self.queues, strict=True))
        return WorkerMemory(me.home, me.heads, "stop") if ended else self.anew(me)

    def anew(self, me: WorkerMemory) -> WorkerMemory:
        return self.enter(me, 0)


def _count(counts: tuple[int, ...], task: int) -> tuple[int, ...]:
    return (*counts[:task], counts[task] + 1, *counts[task + 1 :])
