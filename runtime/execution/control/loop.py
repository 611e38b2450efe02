"""Loop: a body, round by round, as often as a number says and as long as a condition holds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from brickrt.graph.host.collected import none_of
from brickrt.runtime.execution.control.appended import FIRST_STATE, Parts, appending
from brickrt.runtime.execution.control.body import Body, Values
from brickrt.runtime.execution.control.control_node import ControlNode, flag, unshared
from brickrt.runtime.execution.control.stacked import Stacked

TRUE = np.array(True)  # what a body finds its condition to be: it would not run else


def run_loop(control: ControlNode, values: Values) -> list[Any]:
    """The last states, and what was stacked. States that a body gives back as they are stay what they were."""
    what, whole = f"Loop node '{control.node.name}'", control.node.inputs
    found = appending(control.node)
    control = control.of(found.node)
    trips, condition, *given = (*control.node.inputs, "", "")[: max(2, len(control.node.inputs))]
    counter, going = (v.name for v in control.node.attrs["body"].input[:2])
    body = control.loop(given, {going: TRUE}, 2, [counter])
    most = int(values[trips].reshape(-1)[0]) if trips else math.inf
    states = {name: values[outer] if outer else None for name, outer in zip(body.inputs[2:], given)}
    parts = [Parts(state, values[whole[FIRST_STATE + state.place]], what) for state in found.states]
    ends = body.graph.output[1 + len(states) : len(body.outputs) - sum(len(one.names) for one in parts)]
    stacks = [(v.name, Stacked(most, what)) for v in ends]
    if not condition or flag(values[condition]):
        _run(control, body, _Loop(counter, most, states, stacks, parts), values)
    results = (stack.result() for _, stack in stacks)
    stacked = [none_of(v.type) if result is None else result for result, v in zip(results, ends, strict=True)]
    last = unshared(list(states.values()), stacks)
    for state, one in zip(found.states, parts, strict=True):
        last.insert(state.place, one.result())
    return [*last, *stacked]


class _Loop:
    """What changes from round to round: `states` by their names inside the body."""

    def __init__(
        self,
        counter: str,
        most: float,
        states: dict[str, Any],
        stacks: list[tuple[str, Stacked]],
        parts: list[Parts],
    ) -> None:
        self.counter, self.most, self.states, self.stacks, self.parts = counter, most, states, stacks, parts


def _run(control: ControlNode, body: Body, loop: _Loop, values: Values) -> None:
    """All rounds of a loop whose condition holds at first."""
    fixed = {name: values[name] for name in body.captured}
    ends = list(zip(loop.states, body.outputs[1:]))
    ends, count, proceed = [(name, out) for name, out in ends if body.stays.get(out) != name], 0, body.outputs[0]
    states, counter = loop.states, loop.counter
    while count < loop.most:
        inside = {**fixed, **states, counter: np.array(count, np.int64)}
        control.round(body, inside, loop.stacks)
        for one in loop.parts:
            one.add(inside)
        for name, out in ends:
            states[name] = inside[out]
        count += 1
        if not flag(inside[proceed]):
            return
