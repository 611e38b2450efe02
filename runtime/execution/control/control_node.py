"""A node with subgraphs in one call, and the bodies that were made of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from brickrt.graph.builder import OnnxNode
from brickrt.graph.host.guarded import ask_whether_to_go_on
from brickrt.graph.host.run_host_node import outer_names
from brickrt.graph.specialize.body_stage import body_stage, passed_through
from brickrt.graph.specialize.stages import Stage
from brickrt.runtime.execution.control.body import Body, Rounds, Values
from brickrt.runtime.execution.control.stacked import Stacked
from brickrt.runtime.execution.stage_cache import CompiledStage, StageCache


class NoBody(Exception):
    """A subgraph cannot be a stage of its own: the host evaluates the node whole."""


class ControlNode:
    """A node of a stage, which became `compiled`; `rounds` is how its subgraphs run."""

    def __init__(self, node: OnnxNode, stage: Stage, compiled: CompiledStage, rounds: Rounds) -> None:
        self.node, self._stage, self._compiled, self._rounds = node, stage, compiled, rounds

    def of(self, node: OnnxNode) -> ControlNode:
        """The same of another form of the node."""
        return self if node is self.node else ControlNode(node, self._stage, self._compiled, self._rounds)

    def branch(self, attribute: str) -> Body:
        """The body that was made of a subgraph which runs once. Raises NoBody."""
        return self._body(attribute, {}, (), self._stage.repeated)

    def loop(self, given: Sequence[str], own: Mapping[str, np.ndarray], first: int, changing: Sequence[str]) -> Body:
        """The body of a loop. `given` are the names of its states outside; inside they begin with input number `first`.
        `own` are inputs that are constants, `changing` are others in each round, as are the states, except those that
        the body gives back as they are. Raises NoBody."""
        graph = self.node.attrs["body"]
        stays, outputs = passed_through(graph), [v.name for v in graph.output]
        constants, other = dict(own), list(changing)
        states = [v.name for v in graph.input][first : first + len(given)]
        for outer, name, output in zip(given, states, outputs[min(first, 1) :]):
            if stays.get(output) != name or self._changes(outer):
                other.append(name)
            elif outer in self._compiled.specialized.known:
                constants[name] = self._compiled.specialized.known[outer]
        return self._body("body", constants, other, repeated=True)

    def round(self, body: Body, inside: Values, stacks: Sequence[tuple[str, Stacked]]) -> None:
        """Runs a body on the values `inside`, which take up its outputs; those that are stacked go there too."""
        ask_whether_to_go_on()
        slots = {name: slot for name, stack in stacks if (slot := stack.slot()) is not None} if stacks else {}
        self._rounds.run(body, inside, slots)
        for name, stack in stacks:
            stack.add(inside[name])

    def _body(
        self, attribute: str, constants: Mapping[str, np.ndarray], changing: Sequence[str], repeated: bool
    ) -> Body:
        key, bodies = f"{self.node.name}/{attribute}", self._compiled.bodies
        if key not in bodies:
            bodies[key] = self._made(self.node.attrs[attribute], constants, changing, repeated)
        found: Body | None = bodies[key]
        if found is None:
            raise NoBody
        return found

    def _made(
        self, graph: onnx.GraphProto, constants: Mapping[str, np.ndarray], changing: Sequence[str], repeated: bool
    ) -> Body | None:
        own = {v.name for v in graph.input}
        outer = {name: array for name, array in self._compiled.specialized.known.items() if name not in own}
        changing = [*changing, *(name for name in outer_names(graph) if self._changes(name))]
        stage = body_stage(self.node, graph, self._stage.source, {**outer, **constants}, changing, repeated)
        return None if stage is None else Body(graph, stage, StageCache(stage, self._rounds.kept))

    def _changes(self, name: str) -> bool:
        """Whether a tensor around the node is another one each time, as a round of a loop around it runs."""
        stage = self._stage
        if not stage.repeated or name in self._compiled.specialized.known:
            return False
        return name not in stage.inputs or name in stage.changing


def flag(value: Any) -> bool:
    """A condition, as Python has it. Raises TypeError for what is no tensor, ValueError for an empty one."""
    if not isinstance(value, np.ndarray):
        raise TypeError(f"a condition is a tensor, not a {type(value).__name__}")
    if value.size == 0:
        raise ValueError("a condition has an element, and this has none")
    return bool(value.flat[0])


def unshared(states: Sequence[Any], stacks: Sequence[tuple[str, Stacked]]) -> list[Any]:
    """The last states, those that lie in a stack as arrays of their own."""
    return [state.copy() if any(stack.owns(state) for _, stack in stacks) else state for state in states]
