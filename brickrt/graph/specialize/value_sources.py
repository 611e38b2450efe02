"""Which inputs of a stage decide a value inside it: a few integers or flags, from which it follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from brickrt.graph.builder import Builder, OnnxNode
from brickrt.graph.host.run_host_node import deterministic, reads

MOST_DECIDING_ELEMENTS = 8
"""Elements of an input that decides values: flags, rates, counts and shapes have no more."""
MOST_TENSORS = 256
"""Tensors between an input and a value that follows from it."""


class ValueSources:
    """Looks back from a tensor to the inputs of a stage, of which only those in `allowed` may be named."""

    def __init__(self, b: Builder, inputs: Iterable[str], allowed: Iterable[str], nodes: Iterable[OnnxNode]) -> None:
        self._b, self._inputs, self._allowed = b, frozenset(inputs), frozenset(allowed)
        self._nodes = list(nodes)
        self._producers: Mapping[str, OnnxNode] | None = None

    def add(self, nodes: Iterable[OnnxNode]) -> None:
        """Takes up nodes that were put in place of another."""
        self._nodes += nodes
        self._producers = None

    def of(self, name: str) -> frozenset[str]:
        """The inputs that, with constants, decide a tensor's value; none where something else does too."""
        found: set[str] = set()
        seen: set[str] = set()
        todo = [name]
        while todo:
            tensor = self._b.resolve(todo.pop())
            if tensor in seen or tensor in self._b.constants or tensor in self._b.deferred:
                continue
            seen.add(tensor)
            if tensor in self._inputs:
                found.add(tensor)
                continue
            producer = self._producer(tensor)
            if producer is None or not deterministic(producer) or len(seen) > MOST_TENSORS:
                return frozenset()
            todo += reads(producer)
        return frozenset(found) if all(map(self._decides, found)) else frozenset()

    def _producer(self, tensor: str) -> OnnxNode | None:
        if self._producers is None:
            self._producers = {name: node for node in self._nodes for name in node.outputs}
        return self._producers.get(tensor)

    def _decides(self, name: str) -> bool:
        kind = self._b.types.get(name)
        return (
            name in self._allowed
            and kind is not None
            and kind.size <= MOST_DECIDING_ELEMENTS
            and kind.dtype.kind in "iub"
        )
