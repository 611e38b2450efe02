"""A model of how blocks find their tasks, one method per atomic step; `ops/cuda/schedule.cuh` does the same.

A block draws tickets, which are given in the order of the tasks, acquires the task, and looks at what it waits for. Of
tasks that are not ready it holds a few and looks at them again, the oldest first, before it draws further tickets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from brickrt.runtime.states import COMPLETE, IN_PROGRESS, Shared, state_of, word

TICKETS = 1 << 8
"""The counter holds epoch · TICKETS + tickets drawn."""


class Block(NamedTuple):
    """One block's own memory. `step` names the method of `Tickets` it executes next, or "stop".

    `held` are tasks not ready, by number, each with how many of its dependencies were seen complete; `place` is where
    in `held` the block looks, or len(held) for the task of the last ticket. `over`: no more tickets.
    """

    step: str = "open"
    held: tuple[tuple[int, int], ...] = ()
    over: bool = False
    place: int = 0
    task: int = 0
    dep: int = 0


@dataclass(frozen=True)
class Tickets:
    """Runs tasks 0 … n − 1; `deps[t]` are the tasks that t reads. At most `most` tasks are held before a block waits.

    No deadlock: the smallest task that is not complete reads only complete ones, and the block that holds it is not
    one that waits for another, or comes to it as it looks at all that it holds.
    """

    deps: tuple[tuple[int, ...], ...]
    most: int = 2
    epoch: int = 1
    drawn: int = 0  # the counter at the start

    def memory(self, words: tuple[int, ...]) -> Shared:
        """What all blocks see before the first step."""
        return Shared.start(words, self.drawn)

    def start(self, block: int) -> Block:
        """A block before its first step."""
        return Block()

    def task(self, me: Block) -> int:
        return me.task

    def open(self, shared: Shared, me: Block) -> tuple[Shared, Block]:
        """Maximum of the counter and that of the epoch's start."""
        counter = max(shared.tickets, self.epoch * TICKETS)
        return shared._replace(tickets=counter), me._replace(step="draw")

    def draw(self, shared: Shared, me: Block) -> tuple[Shared, Block]:
        """Fetch and add of the counter."""
        task = shared.tickets - self.epoch * TICKETS
        if task >= len(self.deps):
            return shared, self.go_on(me._replace(over=True), len(me.held))
        taken = me._replace(step="acquire", task=task, dep=0, place=len(me.held))
        return shared._replace(tickets=shared.tickets + 1), taken

    def acquire(self, shared: Shared, me: Block) -> tuple[Shared, Block]:
        """Compare-and-swap of the task's own word, which nobody else can have changed in this epoch."""
        return self.store(shared, me.task, IN_PROGRESS), me._replace(step="check" if self.deps[me.task] else "begin")

    def check(self, shared: Shared, me: Block) -> tuple[Shared, Block]:
        """Acquire-load of the word of one dependency."""
        if self.state(shared, self.deps[me.task][me.dep]) != COMPLETE:
            held = (*me.held[: me.place], (me.task, me.dep), *me.held[me.place + 1 :])
            return shared, self.go_on(me._replace(held=held), me.place + 1)
        if me.dep + 1 < len(self.deps[me.task]):
            return shared, me._replace(dep=me.dep + 1)
        return shared, me._replace(step="begin", held=me.held[: me.place] + me.held[me.place + 1 :])

    def visit(self, shared: Shared, me: Block) -> tuple[Shared, Block]:
        """Load of the word for which a held task waits."""
        task, dep = me.held[me.place]
        if self.state(shared, self.deps[task][dep]) != COMPLETE:
            return shared, self.go_on(me, me.place + 1)
        return shared, me._replace(step="check", task=task, dep=dep)

    def begin(self, shared: Shared, me: Block) -> tuple[Shared, Block]:
        """The kernel starts to read its inputs."""
        return shared.begins(me.task), me._replace(step="end")

    def end(self, shared: Shared, me: Block) -> tuple[Shared, Block]:
        """The kernel has written its output."""
        return shared.ends(me.task), me._replace(step="publish")

    def publish(self, shared: Shared, me: Block) -> tuple[Shared, Block]:
        """Release-store of complete."""
        return self.store(shared, me.task, COMPLETE), self.go_on(me, 0)

    def go_on(self, me: Block, place: int) -> Block:
        """To the held task at `place`; after the last one draws a ticket, or begins anew."""
        me = me._replace(task=0, dep=0)
        if place < len(me.held):
            return me._replace(step="visit", place=place)
        if not me.over and len(me.held) < self.most:
            return me._replace(step="draw", place=0)
        return me._replace(step="visit" if me.held else "stop", place=0)

    def state(self, shared: Shared, task: int) -> int:
        return state_of(shared.words[task], self.epoch)

    def store(self, shared: Shared, task: int, state: int) -> Shared:
        return shared.stored(task, word(self.epoch, state))
