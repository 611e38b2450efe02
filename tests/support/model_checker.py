"""Checks a protocol of workers by running every interleaving of its atomic steps."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from brickrt.runtime.state_words import COMPLETE, word
from tests.support.state_protocol_model import Shared

T = TypeVar("T", bound=Hashable)
State = tuple[int, ...]


class ProtocolModel(Protocol):
    """A protocol of workers. A worker's memory is a named tuple whose `step` names the method that it executes next,
    which takes and returns the shared memory and the worker's; at the end it is "stop"."""

    @property
    def deps(self) -> tuple[tuple[int, ...], ...]: ...

    @property
    def epoch(self) -> int: ...

    def memory(self, words: tuple[int, ...]) -> Shared: ...

    def start(self, worker: int, /) -> Any: ...

    def task(self, me: Any, /) -> int: ...


class ProtocolError(Exception):
    """An interleaving that breaks the protocol's promise: what happens, and the steps that lead to it."""


class Explored(NamedTuple):
    """Number of states reached, and the words of the tasks at the end, the same for every interleaving."""

    states: int
    words: tuple[int, ...]


def explore(protocol: ProtocolModel, workers: int, words: tuple[int, ...] = ()) -> Explored:
    """Runs all interleavings of `workers` workers, from the `words` that older epochs left (default zeros).

    Raises ProtocolError if a task can begin twice or before its dependencies have ended, if a word can go back, if
    all workers can stop with a task not complete, or if there is a state in which no worker, stepping alone, would
    ever change shared memory or stop. Since shared memory only moves forward, a protocol without such states ends
    in every fair schedule: spinning is possible only while another worker has something to do.
    """
    search = _StateSearch(protocol)
    start = search.start(workers, words or (0,) * len(protocol.deps))
    came_from: dict[State, tuple[State, int] | None] = {start: None}
    todo = [start]
    while todo:
        state = todo.pop()
        try:
            following = search.following(state)
        except ProtocolError as broken:
            raise ProtocolError(f"{broken}; after {search.history(came_from, state)}") from None
        for worker, after in following:
            if after not in came_from:
                came_from[after] = state, worker
                todo.append(after)
    return Explored(len(came_from), tuple(word(protocol.epoch, COMPLETE) for _ in protocol.deps))


class _Numbers(Generic[T]):
    """Small numbers for values, so that states hash fast."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._of: dict[T, int] = {}

    def of(self, value: T) -> int:
        number = self._of.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class _StateSearch:
    """States are the number of the shared memory, then of each worker, ascending: its memory tells which it is.

    What a step does depends on the shared memory and one worker only, and so do all checks but that of the end.
    """

    def __init__(self, protocol: ProtocolModel) -> None:
        self.protocol = protocol
        self.shared: _Numbers[Shared] = _Numbers()
        self.workers: _Numbers[Any] = _Numbers()
        self.steps: dict[tuple[int, int], tuple[int, int]] = {}
        self.moves: dict[tuple[int, int], bool] = {}

    def start(self, workers: int, words: tuple[int, ...]) -> State:
        ready = sorted(self.workers.of(self.protocol.start(k)) for k in range(workers))
        return (self.shared.of(self.protocol.memory(words)), *ready)

    def following(self, state: State) -> list[tuple[int, State]]:
        """(worker that steps, state after) for each worker not stopped; checks that something can still happen."""
        shared, *workers = state
        active = [k for k, worker in enumerate(workers) if self.workers.values[worker].step != "stop"]
        if not active:
            self.check_end(self.shared.values[shared])
        elif not any(self.can_move(shared, workers[k]) for k in active):
            raise ProtocolError("no worker can ever go on")
        found = []
        for k in active:
            after, mine = self.step(shared, workers[k])
            found.append((workers[k], (after, *sorted([*workers[:k], mine, *workers[k + 1 :]]))))
        return found

    def step(self, shared: int, worker: int) -> tuple[int, int]:
        known = self.steps.get((shared, worker))
        if known is None:
            before, me = self.shared.values[shared], self.workers.values[worker]
            after, mine = getattr(self.protocol, me.step)(before, me)
            self.check_step(before, me, after)
            known = self.steps[shared, worker] = self.shared.of(after), self.workers.of(mine)
        return known

    def can_move(self, shared: int, worker: int) -> bool:
        """Whether a worker stepping alone comes to change shared memory or to stop, rather than to spin."""
        if (shared, worker) not in self.moves:
            at, spun = worker, {worker}
            while True:
                after, at = self.step(shared, at)
                moved = after != shared or self.workers.values[at].step == "stop"
                if moved or at in spun:
                    break
                spun.add(at)
            self.moves[shared, worker] = moved
        return self.moves[shared, worker]

    def check_step(self, before: Shared, me: Any, after: Shared) -> None:
        task = self.protocol.task(me)
        if me.step == "begin" and not all(before.ended[dep] for dep in self.protocol.deps[task]):
            raise ProtocolError(f"task {task} begins before its dependencies have ended")
        if me.step == "begin" and after.begun[task] > 1:
            raise ProtocolError(f"task {task} begins twice")
        if any(new < old for old, new in zip(before.words, after.words)):
            raise ProtocolError(f"step '{me.step}' of task {task} takes shared memory back")

    def check_end(self, end: Shared) -> None:
        complete = word(self.protocol.epoch, COMPLETE)
        missing = [task for task, (ended, at) in enumerate(zip(end.ended, end.words)) if ended != 1 or at != complete]
        if missing:
            raise ProtocolError(f"all workers stop with tasks {missing} not complete")

    def history(self, came_from: dict[State, tuple[State, int] | None], state: State) -> str:
        """The steps that lead to a state, in time, without the spinning ones."""
        names: list[str] = []
        while (origin := came_from[state]) is not None:
            state, worker = origin
            me = self.workers.values[worker]
            names.append(f"{me.step} {self.protocol.task(me)}")
        return ", ".join(reversed(names)) or "no step"
