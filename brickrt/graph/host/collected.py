"""What loops and scans collect: slices of outputs, stacked at the end, and their options for each tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from brickrt.graph.allowance import hold
from brickrt.graph.host.node_arrays import OBJECT_BYTES, memory_of
from brickrt.graph.room import require_bytes


class Collected:
    """The slices of outputs that a loop stacks at its end; memory is asked for room for them as they grow."""

    def __init__(self, outputs: int, what: str) -> None:
        self.parts: list[list[np.ndarray]] = [[] for _ in range(outputs)]
        self._what, self._bytes, self._asked = what, 0, 0

    def add(self, values: Sequence[np.ndarray]) -> None:
        """One slice more of every output. Raises BrickError where there is no room for twice what there is."""
        for part, value in zip(self.parts, values, strict=True):
            part.append(value)
            hold(memory_of(value))
            self._bytes += value.nbytes + OBJECT_BYTES
        if self._bytes > self._asked:
            self._asked = 2 * self._bytes
            require_bytes(self._asked, f"{self._what}, after {len(self.parts[0])} rounds, collects outputs which")


def none_of(kind: onnx.TypeProto) -> np.ndarray:
    """The output of a loop without iterations, as the body declares it; an open dimension is 0."""
    tensor = kind.tensor_type
    return np.empty((0, *(d.dim_value for d in tensor.shape.dim)), helper.tensor_dtype_to_np_dtype(tensor.elem_type))


def per_tensor(options: Mapping[str, Any], name: str, count: int) -> list[int]:
    """An option of one integer per input or output, 0 where it is not given."""
    return list(options.get(name) or [0] * count)
