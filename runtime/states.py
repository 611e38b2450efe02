"""The state words of brick tasks, and a model of the protocol by which workers run them.

One word per task holds `epoch * 4 + state`. Words only grow; a word of an older epoch counts as not started, so a run
takes the next epoch instead of clearing words. Memory of zeros is epoch 0: runs start at epoch 1.

Workers take tasks by ticket in topological order. `Protocol` is the definition that engines implement, one method per
atomic step; `explore.py` runs it in every interleaving.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NOT_STARTED, IN_PROGRESS, COMPLETE = 0, 1, 2


def word(epoch: int, state: int) -> int:
    return epoch * 4 + state


def state_of(value: int, epoch: int) -> int:
    """What a word says to a run of `epoch`, which is at least the epoch of the word."""
    return max(value - word(epoch, NOT_STARTED), NOT_STARTED)


class Shared(NamedTuple):
    """Memory that all workers see. `begun` and `ended` count runs of each task: the observer's, not the protocol's."""

    ticket: int
    words: tuple[int, ...]
    begun: tuple[int, ...]
    ended: tuple[int, ...]


class Worker(NamedTuple):
    """One worker's own memory. `step` names the method of `Protocol` it executes next, or "stop".

    `slot` is the place of `task` in the list of deferred tasks; a task just taken has the place after the last.
    """

    step: str = "take"
    task: int = -1
    slot: int = 0
    dep: int = 0
    seen: int = 0
    deferred: tuple[int, ...] = ()
    drained: bool = False


@dataclass(frozen=True)
class Protocol:
    """Runs `tickets`, tasks in topological order; a task listed twice is run by whoever acquires it first.

    `deps[t]` are the tasks that t reads. A worker whose task reads one that is not complete puts it aside and takes the
    next ticket; before each ticket it goes through the tasks it has put aside. It does nothing else while it holds
    `capacity` of them (0: never puts aside, waits in place) or no ticket is left. No deadlock: of the tasks not
    complete, the earliest in ticket order reads only complete ones, so that whoever holds it can run it.
    """

    deps: tuple[tuple[int, ...], ...]
    tickets: tuple[int, ...]
    epoch: int = 1
    capacity: int = 4

    def take(self, shared: Shared, me: Worker) -> tuple[Shared, Worker]:
        """Fetch-add on the ticket counter."""
        after = shared._replace(ticket=shared.ticket + 1)
        if shared.ticket >= len(self.tickets):
            return after, self.next(me._replace(drained=True, slot=len(me.deferred)))
        return after, self.consider(me, self.tickets[shared.ticket], len(me.deferred))

    def check(self, shared: Shared, me: Worker) -> tuple[Shared, Worker]:
        """Acquire-load of the word of one dependency."""
        state = self.state(shared, self.deps[me.task][me.dep])
        fresh = me.slot == len(me.deferred)
        if state == COMPLETE:
            last = me.dep + 1 == len(self.deps[me.task])
            return shared, me._replace(step="look" if last else "check", dep=me.dep + 1)
        if not fresh:
            return shared, self.next(me._replace(slot=me.slot + 1))
        if len(me.deferred) < self.capacity:
            return shared, self.next(me._replace(deferred=(*me.deferred, me.task), slot=0))
        return shared, me

    def look(self, shared: Shared, me: Worker) -> tuple[Shared, Worker]:
        """Load of the task's own word, for the compare-and-swap."""
        if self.state(shared, me.task) != NOT_STARTED:
            return shared, self.leave(me)
        return shared, me._replace(step="acquire", seen=shared.words[me.task])

    def acquire(self, shared: Shared, me: Worker) -> tuple[Shared, Worker]:
        """Compare-and-swap of the task's own word to in progress."""
        if shared.words[me.task] != me.seen:
            return shared, self.leave(me)
        return self.store(shared, me.task, IN_PROGRESS), me._replace(step="begin")

    def begin(self, shared: Shared, me: Worker) -> tuple[Shared, Worker]:
        """The kernel starts to read its inputs."""
        return shared._replace(begun=_count(shared.begun, me.task)), me._replace(step="end")

    def end(self, shared: Shared, me: Worker) -> tuple[Shared, Worker]:
        """The kernel has written its output."""
        return shared._replace(ended=_count(shared.ended, me.task)), me._replace(step="publish")

    def publish(self, shared: Shared, me: Worker) -> tuple[Shared, Worker]:
        """Release-store of complete."""
        return self.store(shared, me.task, COMPLETE), self.leave(me)

    def state(self, shared: Shared, task: int) -> int:
        return state_of(shared.words[task], self.epoch)

    def store(self, shared: Shared, task: int, state: int) -> Shared:
        words = (*shared.words[:task], word(self.epoch, state), *shared.words[task + 1 :])
        return shared._replace(words=words)

    def consider(self, me: Worker, task: int, slot: int) -> Worker:
        return me._replace(step="check" if self.deps[task] else "look", task=task, slot=slot, dep=0, seen=0)

    def leave(self, me: Worker) -> Worker:
        """The task is run, or somebody else's: go on in the list, after a ticket from its start."""
        fresh = me.slot == len(me.deferred)
        kept = me.deferred[: me.slot] + me.deferred[me.slot + 1 :]
        return self.next(me._replace(deferred=kept, slot=0 if fresh else me.slot))

    def next(self, me: Worker) -> Worker:
        """What to do when done with the list up to `slot`: revisit, take a ticket, or stop."""
        if me.slot < len(me.deferred):
            return self.consider(me, me.deferred[me.slot], me.slot)
        if me.drained and not me.deferred:
            return Worker("stop")
        if me.drained or len(me.deferred) >= max(self.capacity, 1):
            return self.consider(me, me.deferred[0], 0)
        return me._replace(step="take", task=-1, dep=0, seen=0)


def _count(counts: tuple[int, ...], task: int) -> tuple[int, ...]:
    return (*counts[:task], counts[task] + 1, *counts[task + 1 :])
