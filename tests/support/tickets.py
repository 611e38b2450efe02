"""A model of how blocks find their tasks, one method per atomic step; `ops/cuda/headers/schedule.cuh` does the same.

A block draws tickets, which are given in the order of the tasks, acquires the task, and looks at what it waits for. Of
tasks that are not ready it holds a few and looks at them again, the oldest first, before it draws further tickets. The
last block that leaves begins the next epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from brickrt.runtime.cuda.kernels.kernel_context import HELD
from brickrt.runtime.state_words import COMPLETE, IN_PROGRESS, word
from tests.support.state_protocol_model import Shared, state_of

TICKETS, LEFT = 1 << 8, 1 << 16
"""The counter holds blocks that have left · LEFT + epochs ended · TICKETS + tickets drawn."""


class BlockMemory(NamedTuple):
    """One block's own memory. `step` names the method of `Tickets` it executes next, or "stop".

    `held` are tasks not ready, by number, each with how many of its dependencies were seen complete, `maybe` the places
    there of those of which the next one was too; `place` is where in `held` the block looks, or len(held) for the task
    of the last ticket. `over`: no more tickets.
    """

    step: str = "open"
    epoch: int = 0
    held: tuple[tuple[int, int], ...] = ()
    maybe: tuple[int, ...] = ()
    over: bool = False
    place: int = 0
    task: int = 0
    dep: int = 0


@dataclass(frozen=True)
class Tickets:
    """Runs tasks 0 … n − 1 on `blocks` blocks; `deps[t]` are the tasks that t reads. At most `most` tasks are held
    before a block waits.

    No deadlock: the smallest task that is not complete reads only complete ones, and the block that holds it is not
    one that waits for another, or comes to it as it looks at all that it holds.
    """

    deps: tuple[tuple[int, ...], ...]
    blocks: int
    most: int = HELD
    epoch: int = 1
    counter: int = 0  # at the start

    def memory(self, words: tuple[int, ...]) -> Shared:
        """What all blocks see before the first step."""
        return Shared.start(words, self.counter)

    def start(self, block: int) -> BlockMemory:
        """A block before its first step."""
        return BlockMemory()

    def task(self, me: BlockMemory) -> int:
        """The task that a block is at."""
        return me.task

    def open(self, shared: Shared, me: BlockMemory) -> tuple[Shared, BlockMemory]:
        """Load of the counter, for the epoch."""
        return shared, me._replace(step="draw", epoch=1 + shared.tickets % LEFT // TICKETS)

    def draw(self, shared: Shared, me: BlockMemory) -> tuple[Shared, BlockMemory]:
        """Fetch and add of the counter."""
        task = shared.tickets % TICKETS
        if task >= len(self.deps):
            return shared, self.more(me._replace(over=True))
        taken = me._replace(step="acquire", task=task, dep=0, place=len(me.held))
        return shared._replace(tickets=shared.tickets + 1), taken

    def acquire(self, shared: Shared, me: BlockMemory) -> tuple[Shared, BlockMemory]:
        """Compare-and-swap of the task's own word, which nobody else can have changed in this epoch."""
        after = shared.stored(me.task, word(me.epoch, IN_PROGRESS))
        return after, me._replace(step="check" if self.deps[me.task] else "begin")

    def check(self, shared: Shared, me: BlockMemory) -> tuple[Shared, BlockMemory]:
        """Acquire-load of the word of one dependency."""
        if self.state(shared, me, self.deps[me.task][me.dep]) != COMPLETE:
            is_held = me.place < len(me.held)
            me = me._replace(held=(*me.held[: me.place], (me.task, me.dep), *me.held[me.place + 1 :]))
            return shared, self.look(me) if is_held else self.more(me)
        if me.dep + 1 < len(self.deps[me.task]):
            return shared, me._replace(dep=me.dep + 1)
        return shared, me._replace(step="begin", held=me.held[: me.place] + me.held[me.place + 1 :], maybe=())

    def visit(self, shared: Shared, me: BlockMemory) -> tuple[Shared, BlockMemory]:
        """Load of the word for which a held task waits."""
        task, dep = me.held[me.place]
        if self.state(shared, me, self.deps[task][dep]) == COMPLETE:
            me = me._replace(maybe=(*me.maybe, me.place))
        return shared, me._replace(place=me.place + 1) if me.place + 1 < len(me.held) else self.look(me)

    def begin(self, shared: Shared, me: BlockMemory) -> tuple[Shared, BlockMemory]:
        """The kernel starts to read its inputs."""
        return shared.begins(me.task), me._replace(step="end")

    def end(self, shared: Shared, me: BlockMemory) -> tuple[Shared, BlockMemory]:
        """The kernel has written its output."""
        return shared.ends(me.task), me._replace(step="publish")

    def publish(self, shared: Shared, me: BlockMemory) -> tuple[Shared, BlockMemory]:
        """Release-store of complete."""
        return shared.stored(me.task, word(me.epoch, COMPLETE)), self.again(me)

    def leave(self, shared: Shared, me: BlockMemory) -> tuple[Shared, BlockMemory]:
        """Fetch and add of the blocks that have left."""
        after = shared._replace(tickets=shared.tickets + LEFT)
        last = after.tickets // LEFT % self.blocks == 0
        return after, me._replace(step="renew" if last else "stop")

    def renew(self, shared: Shared, me: BlockMemory) -> tuple[Shared, BlockMemory]:
        """Maximum of the counter and that of the next epoch's start."""
        left, counter = divmod(shared.tickets, LEFT)
        return shared._replace(tickets=left * LEFT + max(counter, me.epoch * TICKETS)), me._replace(step="stop")

    # ---- where a block goes on

    def again(self, me: BlockMemory) -> BlockMemory:
        """To all that it holds."""
        me = me._replace(task=0, dep=0, place=0, maybe=())
        return me._replace(step="visit") if me.held else self.more(me)

    def look(self, me: BlockMemory) -> BlockMemory:
        """To the oldest held task that may be ready."""
        if not me.maybe:
            return self.more(me)
        place, *later = me.maybe
        task, dep = me.held[place]
        return me._replace(step="check", place=place, task=task, dep=dep, maybe=tuple(later))

    def more(self, me: BlockMemory) -> BlockMemory:
        """To further tickets, as far as it can hold and have them."""
        me = me._replace(task=0, dep=0, place=0, maybe=())
        if not me.over and len(me.held) < self.most:
            return me._replace(step="draw")
        return me._replace(step="visit" if me.held else "leave")

    def state(self, shared: Shared, me: BlockMemory, task: int) -> int:
        """A task's state in the block's epoch."""
        return state_of(shared.words[task], me.epoch)
