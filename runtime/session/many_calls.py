"""Many calls of one runtime: one after the other, while the caller reads and writes files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from brickrt.graph.errors import InputError

CALLS_AHEAD = 1  # whose inputs are there before the caller has taken what came before

Inputs = Mapping[str, Any]
Outputs = dict[str, Any]


def in_order(execute: Callable[[Inputs], Outputs], many: Iterable[Inputs]) -> Iterator[Outputs]:
    """The outputs of `execute` for each of `many`, in their order. It computes in a thread of its own, so that the next
    inputs are read, and earlier outputs used, meanwhile; at most CALLS_AHEAD wait. An error is raised where its
    outputs would have been."""
    if isinstance(many, Mapping):
        raise InputError("execute_many takes several inputs, each by name: give a list or a generator, or use execute")
    return _results(execute, many)


def _results(execute: Callable[[Inputs], Outputs], many: Iterable[Inputs]) -> Iterator[Outputs]:
    under_way: deque[Future[Outputs]] = deque()
    with ThreadPoolExecutor(1, "brickrt-many") as one:
        try:
            for inputs in many:
                under_way.append(one.submit(execute, inputs))
                if len(under_way) > CALLS_AHEAD:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for call in under_way:
                call.cancel()
