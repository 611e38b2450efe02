"""States of a loop to which each round only appends: joined once, behind the last round, not in each.

    v ── Concat ── next v         a ── collected, round by round
    a ──┘                   →     v, and all a, joined at the end

A body that joins what it has to what is new copies all of it in each round, and is another one for each size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import onnx

from brickrt.graph.builder import OnnxNode
from brickrt.graph.host.collected import Collected
from brickrt.graph.host.run_host_node import outer_names

FIRST_STATE = 2  # among the inputs of a body, behind the number of the round and the condition


@dataclass(frozen=True)
class AppendedState:
    """State number `place` of a loop: each round puts the tensors `before` in front of it, and `after` behind it."""

    place: int
    axis: int
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class AppendingLoop:
    """A loop without the states that it appends to: `node` has neither them nor what joins them."""

    node: OnnxNode
    states: tuple[AppendedState, ...]


class Parts:
    """What the rounds of a loop append to the value that a state has at first. `what` is the node in words."""

    def __init__(self, state: AppendedState, first: Any, what: str) -> None:
        self._state, self._first = state, first
        self.names = (*state.before, *state.after)
        self._collected = Collected(len(self.names), what)

    def add(self, inside: Mapping[str, Any]) -> None:
        """Takes what a round appends. Raises TypeError for what is no tensor, ValueError for another type."""
        values = [inside[name] for name in self.names]
        for value in (self._first, *values):
            if not isinstance(value, np.ndarray):
                raise TypeError(f"Concat joins tensors, and has a {type(value).__name__}")
            if _kind(value) != _kind(self._first):
                raise ValueError(f"Concat joins tensors of one type and rank: {_kind(value)} to {_kind(self._first)}")
        self._collected.add(values)

    def result(self) -> Any:
        """The state at the end. Raises ValueError for shapes that cannot be joined."""
        parts = self._collected.parts
        rounds = len(parts[0])
        if not rounds:
            return self._first
        split = len(self._state.before)
        front = [part[k] for k in reversed(range(rounds)) for part in parts[:split]]
        back = [part[k] for k in range(rounds) for part in parts[split:]]
        return np.concatenate([*front, self._first, *back], self._state.axis)


def appending(node: OnnxNode) -> AppendingLoop:
    """A Loop node without the states that it only appends to; as it is where there are none."""
    if node not in _FOUND:
        _FOUND[node] = _appending(node)
    return _FOUND[node] or AppendingLoop(node, ())


_FOUND: WeakKeyDictionary[OnnxNode, AppendingLoop | None] = WeakKeyDictionary()  # values must not hold their keys


def _kind(value: np.ndarray) -> tuple[str, int]:
    """The type of a tensor's elements, one for all texts, and its rank."""
    return "text" if value.dtype.kind in "USO" else value.dtype.name, value.ndim


def _appending(node: OnnxNode) -> AppendingLoop | None:
    graph, reads = node.attrs["body"], _reads(node.attrs["body"])
    joins = {n.output[0]: n for n in graph.node if n.op_type == "Concat" and n.domain in ("", "ai.onnx")}
    states: list[AppendedState] = []
    for place, outer in enumerate(node.inputs[FIRST_STATE:]):
        state, join = graph.input[FIRST_STATE + place].name, joins.get(graph.output[1 + place].name)
        if outer and join is not None and reads[state] == reads[join.output[0]] == 1:
            states += _appended(place, state, join)
    return AppendingLoop(_without(node, states, joins), tuple(states)) if states else None


def _reads(graph: onnx.GraphProto) -> Counter[str]:
    """How often each tensor is read in a body, by its nodes, what is inside these, and as an output."""
    inner = (name for n in graph.node for a in n.attribute if a.HasField("g") for name in outer_names(a.g))
    return Counter([*(name for n in graph.node for name in n.input), *inner, *(v.name for v in graph.output)])


def _appended(place: int, state: str, join: onnx.NodeProto) -> Sequence[AppendedState]:
    """What a Concat of a state appends, if it has an axis and joins it to something."""
    axis, names = next((a.i for a in join.attribute if a.name == "axis"), None), list(join.input)
    if axis is None or state not in names or len(names) < 2:
        return ()
    at = names.index(state)
    return (AppendedState(place, axis, tuple(names[:at]), tuple(names[at + 1 :])),)


def _without(node: OnnxNode, states: Sequence[AppendedState], joins: Mapping[str, onnx.NodeProto]) -> OnnxNode:
    """The loop without these states: what is appended to them are the last outputs of its body."""
    body, places = onnx.GraphProto(), [state.place for state in states]
    body.CopyFrom(node.attrs["body"])
    gone = [joins[body.output[1 + place].name] for place in places]
    for join in gone:
        body.node.remove(join)
    for place in reversed(places):
        del body.input[FIRST_STATE + place], body.output[1 + place]
    body.output.extend(onnx.ValueInfoProto(name=name) for state in states for name in (*state.before, *state.after))
    inputs = [name for k, name in enumerate(node.inputs) if k - FIRST_STATE not in places]
    outputs = [name for k, name in enumerate(node.outputs) if k not in places]
    return replace(node, inputs=tuple(inputs), outputs=tuple(outputs), attrs={**node.attrs, "body": body})
