"""If: one of two subgraphs, by a condition that the host computes."""

from __future__ import annotations

from typing import Any

from brickrt.runtime.execution.control.body import Values
from brickrt.runtime.execution.control.control_node import ControlNode, flag


def run_if(control: ControlNode, values: Values) -> list[Any]:
    """The outputs of the branch that the condition chooses."""
    body = control.branch("then_branch" if flag(values[control.node.inputs[0]]) else "else_branch")
    inside = {name: values[name] for name in body.captured}
    control.round(body, inside, ())
    return [inside[name] for name in body.outputs]
