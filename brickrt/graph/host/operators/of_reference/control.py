"""If, Loop, Scan and Optional in full; ONNX's reference does only part of each. An absent optional is None."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from brickrt.graph.host.collected import Collected, none_of, per_tensor
from brickrt.graph.host.guarded import ask_whether_to_go_on
from brickrt.graph.host.host_operator import HostOperator, evaluates

Step = Callable[..., list[np.ndarray]]
"""The body of a scan: from states and slices it computes new states and slices."""


class _AnyValue(OpRun):
    """An operator whose outputs may be absent."""

    def _check_and_fix_outputs(self, res: tuple[Any, ...]) -> tuple[Any, ...]:
        return res


@evaluates(HostOperator(elements=None), "Optional")
class Optional(_AnyValue):
    """An optional value as it is; the reference puts it in a list that OptionalGetElement does not unpack."""

    def _run(self, x=None, **_: Any):
        return (x,)


@evaluates(HostOperator(elements=None), "If")
class If(_AnyValue):
    """Runs the branch that the condition chooses."""

    def need_context(self) -> bool:
        """Its branches read tensors of the outer scope."""
        return True

    def _run(self, cond, context=None, then_branch=None, else_branch=None, attributes=None, **_: Any):
        if not isinstance(cond, np.ndarray):
            raise TypeError(f"a condition is a tensor, not a {type(cond).__name__}")
        chosen = then_branch if bool(np.asarray(cond).reshape(-1)[0]) else else_branch
        return tuple(chosen.run(None, context or {}, attributes=attributes))


@evaluates(HostOperator(elements=None), "Loop")
class Loop(_AnyValue):
    """Runs the body while the condition holds; the reference needs a condition, and stacks only outputs of rank 1."""

    def need_context(self) -> bool:
        """Its body reads tensors of the outer scope."""
        return True

    def _run(self, trips=None, cond=None, *states: Any, context=None, body=None, attributes=None, **_: Any):
        names, scanned = body.input_names, len(body.output_names) - 1 - len(states)
        limit = np.inf if trips is None else int(np.asarray(trips).reshape(-1)[0])
        going, count = cond is None or bool(np.asarray(cond).reshape(-1)[0]), 0
        collected = Collected(scanned, f"Loop node '{self.onnx_node.name}'")
        while going and count < limit:
            ask_whether_to_go_on()
            feeds = {**(context or {}), **dict(zip(names, [np.asarray(count, np.int64), np.asarray(going), *states]))}
            proceed, *results = body.run(None, feeds, attributes=attributes)
            states, going, count = tuple(results[: len(states)]), bool(np.asarray(proceed).reshape(-1)[0]), count + 1
            collected.add(results[len(states) :])
        types = body.output_types[len(body.output_types) - scanned :]
        return (*states, *(np.stack(part) if part else none_of(t) for part, t in zip(collected.parts, types)))


@evaluates(HostOperator(elements=None), "Scan")
class Scan(OpRun):
    """Runs the body once per slice of the scanned inputs; the reference only scans forward along axis 0."""

    def need_context(self) -> bool:
        """Its body reads tensors of the outer scope."""
        return True

    def _run(self, *args, context=None, body=None, num_scan_inputs=None, attributes=None, **options: Any):
        def step(*values: np.ndarray) -> list[np.ndarray]:
            feeds = {**(context or {}), **dict(zip(body.input_names, values, strict=True))}
            return body.run(None, feeds, attributes=attributes)

        scan = partial(self._scan, step, len(body.output_names), scanned=num_scan_inputs)
        if self.run_params["opsets"][""] >= 9:
            return scan(args, options)
        lengths, batched = args[0], args[1:]
        directions = next((list(a.ints) for a in self.onnx_node.attribute if a.name == "directions"), None)
        options["scan_input_directions"] = directions
        rows = []
        for b in range(batched[0].shape[0]):
            row, length = [a[b] for a in batched], None if lengths is None else int(lengths[b])
            split = len(row) - num_scan_inputs
            rows.append(scan([*row[:split], *(x[:length] for x in row[split:])], options))
        return tuple(np.stack(parts) for parts in zip(*rows, strict=True))

    def _scan(
        self, step: Step, results: int, args: Sequence[np.ndarray], options: dict[str, Any], scanned: int
    ) -> tuple[np.ndarray, ...]:
        split = len(args) - scanned
        states, inputs, n_outputs = list(args[:split]), args[split:], results - split
        axes, backward = (
            per_tensor(options, "scan_input_axes", scanned),
            per_tensor(options, "scan_input_directions", scanned),
        )
        sequences = [
            list(np.moveaxis(x, axis, 0)[:: -1 if back else 1])
            for x, axis, back in zip(inputs, axes, backward, strict=True)
        ]
        collected = Collected(n_outputs, f"Scan node '{self.onnx_node.name}'")
        for slices in zip(*sequences, strict=True):
            ask_whether_to_go_on()
            given = step(*states, *slices)
            states = given[:split]
            collected.add(given[split:])
        if any(not part for part in collected.parts):
            raise ValueError("a scan over no elements has outputs of unknown shape")
        axes, backward = (
            per_tensor(options, "scan_output_axes", n_outputs),
            per_tensor(options, "scan_output_directions", n_outputs),
        )
        stacked = (
            np.stack(part[:: -1 if back else 1], axis)
            for part, axis, back in zip(collected.parts, axes, backward, strict=True)
        )
        return (*states, *stacked)
