"""Nodes of ONNX's reference that ask before they run: whether the run goes on, and whether memory has room."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.graph.host.output_elements import output_elements
from brickrt.graph.room import require_bytes

_ask: ContextVar[Callable[[], None] | None] = ContextVar("ask", default=None)


@contextmanager
def asking(ask: Callable[[], None]) -> Iterator[None]:
    """Inside, `ask` is called before each node that the reference runs, also in loops; what it raises ends the run."""
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


class GuardedNode:
    """A node of the reference, of which nothing else changes."""

    def __init__(self, node: Any) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def run(self, *inputs: Any, **more: Any) -> tuple[Any, ...]:
        """Runs the node. Raises BrickError where memory has no room for its outputs, and for a TopK of more elements
        than there are: the reference makes them all before it looks."""
        ask = _ask.get()
        if ask is not None:
            ask()
        proto = self._node.onnx_node
        arrays = [x if isinstance(x, np.ndarray) else None for x in inputs]
        if proto.op_type == "TopK" and proto.domain in ("", "ai.onnx") and len(arrays) > 1:
            size, most = np.size(inputs[0]), np.max(inputs[1], initial=0)
            if most > size:
                name = proto.name or proto.op_type
                raise BrickError(f"TopK node '{name}' is asked for {most} of {size} elements: give a smaller k")
        elements = output_elements(proto, arrays)
        if elements:
            largest = max((x.itemsize for x in arrays if x is not None), default=4)
            require_bytes(elements * largest, f"{proto.op_type} node '{proto.name}' gives {elements} elements, which")
        return self._node.run(*inputs, **more)


class Collected:
    """The slices of outputs that a loop stacks at its end; memory is asked for room for them as they grow."""

    def __init__(self, outputs: int, what: str) -> None:
        self.parts: list[list[np.ndarray]] = [[] for _ in range(outputs)]
        self._what, self._bytes, self._asked = what, 0, 0

    def add(self, values: Sequence[np.ndarray]) -> None:
        """One slice more of every output. Raises BrickError where there is no room for twice what there is."""
        for part, value in zip(self.parts, values, strict=True):
            part.append(value)
            self._bytes += value.nbytes + OBJECT_BYTES
        if self._bytes > self._asked:
            self._asked = 2 * self._bytes
            require_bytes(self._asked, f"{self._what}, after {len(self.parts[0])} rounds, collects outputs which")


OBJECT_BYTES = 160
"""What an array takes beside its elements."""
