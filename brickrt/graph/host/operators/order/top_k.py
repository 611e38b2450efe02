"""TopK of many elements, which ONNX's reference puts in order one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from brickrt.graph.errors import BrickError
from brickrt.graph.host.host_operator import Attributes, HostOperator, evaluates
from brickrt.graph.host.node_arrays import PLACE, Arrays, integers, shape_of, size_of
from brickrt.graph.host.operators.order.greatest_elements import AT_ONCE, greatest_elements

ORDERED_BYTES = 40
"""Bytes for each element of rows that are put in order: a copy, its words or places, and what is made of these."""


def _elements(arrays: Arrays, at: Attributes) -> int:
    shape = list(shape_of(arrays))
    shape[at.get("axis", -1)] = integers(arrays[1])[0]
    return size_of(shape)


def _bytes(arrays: Arrays, at: Attributes, made: int, usual: float) -> float:
    x = np.asarray(arrays[0])
    axis = at.get("axis", -1)
    count = int(np.asarray(arrays[1] if len(arrays) > 1 else at["k"]).reshape(-1)[0])
    outputs = x.size // max(1, x.shape[axis]) * count * (x.itemsize + PLACE)
    turned = axis % x.ndim != x.ndim - 1
    return outputs * (1 + turned) + x.nbytes * turned + ORDERED_BYTES * min(x.size, max(AT_ONCE, x.shape[axis]))


def _check(node: onnx.NodeProto, values: Sequence[Any]) -> None:
    """Raises BrickError for more elements than there are: they would be asked for too much memory."""
    size, most = np.size(values[0]), np.max(values[1], initial=0) if len(values) > 1 else 0
    if most > size:
        name = node.name or node.op_type
        raise BrickError(f"TopK node '{name}' is asked for {most} of {size} elements: give a smaller k")


@evaluates(HostOperator(_elements, working_bytes=_bytes, check=_check), "TopK")
def _top_k(x, k=None, axis=-1, largest=1, **_: Any):
    """The greatest or least elements along an axis, and where they are; up to opset 9 their number is an attribute."""
    count = int(np.asarray(k).reshape(-1)[0])
    extent = x.shape[axis] if x.ndim else 0
    if not 0 <= count <= extent:
        raise ValueError(f"{count} of {extent} elements are asked for along axis {axis}")
    return greatest_elements(x, count, axis, bool(largest))
