"""ONNX Scan in full: any axis and direction, and the batched form of opset 8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun


class Scan(OpRun):
    """Runs the body once per slice of the scanned inputs; the reference has only forward scans along axis 0."""

    op_domain = ""

    def need_context(self) -> bool:
        return True

    def _run(self, *args, context=None, body=None, num_scan_inputs=None, attributes=None, **options: Any):
        self._body, self._context, self._attributes = body, context or {}, attributes
        if self.run_params["opsets"][""] >= 9:
            return self._scan(args, num_scan_inputs, options)
        lengths, batched = args[0], args[1:]
        directions = next((list(a.ints) for a in self.onnx_node.attribute if a.name == "directions"), None)
        options["scan_input_directions"] = directions
        rows = []
        for b in range(batched[0].shape[0]):
            row, length = [a[b] for a in batched], None if lengths is None else int(lengths[b])
            split = len(row) - num_scan_inputs
            rows.append(self._scan([*row[:split], *(x[:length] for x in row[split:])], num_scan_inputs, options))
        return tuple(np.stack(parts) for parts in zip(*rows, strict=True))

    def _scan(self, args: Sequence[np.ndarray], scanned: int, options: dict[str, Any]) -> tuple[np.ndarray, ...]:
        split = len(args) - scanned
        states, inputs = list(args[:split]), args[split:]
        names, n_outputs = self._body.input_names, len(self._body.output_names) - split
        axes, backward = _per(options, "scan_input_axes", scanned), _per(options, "scan_input_directions", scanned)
        sequences = [
            list(np.moveaxis(x, axis, 0)[:: -1 if back else 1])
            for x, axis, back in zip(inputs, axes, backward, strict=True)
        ]
        collected: list[list[np.ndarray]] = [[] for _ in range(n_outputs)]
        for slices in zip(*sequences, strict=True):
            feeds = {**self._context, **dict(zip(names, [*states, *slices], strict=True))}
            results = self._body.run(None, feeds, attributes=self._attributes)
            states = results[:split]
            for part, value in zip(collected, results[split:], strict=True):
                part.append(value)
        if any(not part for part in collected):
            raise ValueError("a scan over no elements has outputs of unknown shape")
        axes, backward = (
            _per(options, "scan_output_axes", n_outputs),
            _per(options, "scan_output_directions", n_outputs),
        )
        stacked = (
            np.stack(part[:: -1 if back else 1], axis)
            for part, axis, back in zip(collected, axes, backward, strict=True)
        )
        return (*states, *stacked)


def _per(options: dict[str, Any], name: str, count: int) -> list[int]:
    """An option of one integer per input or output, 0 where it is not given."""
    return list(options.get(name) or [0] * count)
