"""Scan: a body, once for each slice of some tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from brickrt.graph.host.collected import per_tensor
from brickrt.runtime.execution.control.body import Values
from brickrt.runtime.execution.control.control_node import ControlNode, unshared
from brickrt.runtime.execution.control.stacked import Stacked


def run_scan(control: ControlNode, values: Values) -> list[Any]:
    """The last states, and what was stacked. Raises ValueError for tensors of different numbers of slices."""
    node, count = control.node, int(control.node.attrs["num_scan_inputs"])
    split = len(node.inputs) - count
    slices = [v.name for v in node.attrs["body"].input][split:]
    body = control.loop(node.inputs[:split], {}, 0, slices)
    states = {name: values[outer] for name, outer in zip(body.inputs, node.inputs[:split])}
    scanned = _slices(control, [values[name] for name in node.inputs[split:]])
    outs = body.outputs[split:]
    axes, backward = _per(control, "scan_output", len(outs))
    what, most = f"Scan node '{node.name}'", len(scanned[0])
    stacks = [(name, Stacked(most, what, bool(back))) for name, back in zip(outs, backward, strict=True)]
    fixed = {name: values[name] for name in body.captured}
    for parts in zip(*scanned, strict=True):
        inside = {**fixed, **states, **dict(zip(slices, parts, strict=True))}
        control.round(body, inside, stacks)
        states = {name: inside[out] for name, out in zip(states, body.outputs)}
    results = [stack.result() for _, stack in stacks]
    if any(result is None for result in results):
        raise ValueError("a scan over no elements has outputs of unknown shape")
    moved = [
        np.ascontiguousarray(np.moveaxis(x, 0, axis)) for x, axis in zip(results, axes, strict=True) if x is not None
    ]
    return [*unshared(list(states.values()), stacks), *moved]


def _slices(control: ControlNode, tensors: list[Any]) -> list[list[np.ndarray]]:
    """The slices of each scanned tensor, in the order in which they are read."""
    axes, backward = _per(control, "scan_input", len(tensors))
    turned = [np.ascontiguousarray(np.moveaxis(x, axis, 0)) for x, axis in zip(tensors, axes, strict=True)]
    if len({len(x) for x in turned}) > 1:
        raise ValueError(f"it scans tensors of {', '.join(str(len(x)) for x in turned)} slices: give as many of each")
    return [[x[k, ...] for k in range(len(x))[:: -1 if back else 1]] for x, back in zip(turned, backward, strict=True)]


def _per(control: ControlNode, kind: str, count: int) -> tuple[list[int], list[int]]:
    """The axes and directions of inputs or outputs."""
    attrs = control.node.attrs
    return per_tensor(attrs, f"{kind}_axes", count), per_tensor(attrs, f"{kind}_directions", count)
