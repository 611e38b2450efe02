"""Operators whose output is known once shapes are."""

from __future__ import annotations

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.arithmetic.cast import element_type


@builds("Shape")
def shape_of(b: Builder, node: OnnxNode) -> str:
    """The extents from `start` to `end`."""
    part = slice(node.attrs.get("start", 0), node.attrs.get("end"))
    return b.constant(np.asarray(b.type(node.inputs[0]).shape[part], np.int64))


@builds("Size")
def size_of(b: Builder, node: OnnxNode) -> str:
    """The number of elements."""
    return b.constant(np.asarray(b.type(node.inputs[0]).size, np.int64))


@builds("ConstantOfShape")
def constant_of_shape(b: Builder, node: OnnxNode) -> str:
    """One value, in a shape that is known."""
    values = np.asarray(node.attrs.get("value", np.zeros(1, np.float32))).reshape(-1)
    if values.size != 1:
        raise ValueError(f"value has {values.size} elements, not one")
    value = values[0]
    shape = tuple(int(d) for d in b.value(node.inputs[0]).reshape(-1))
    b.check_constant(shape, value.dtype)
    return b.constant(np.full(shape, value))


@builds("Range")
def count_up(b: Builder, node: OnnxNode) -> str:
    """start, start + delta, … up to the limit, which is left out."""
    start, limit, delta = (b.scalar(name) for name in node.inputs[:3])
    if delta == 0:
        raise ValueError("a step of 0 never reaches the limit")
    steps = np.ceil((np.float64(limit) - np.float64(start)) / np.float64(delta))
    if not np.isfinite(steps):
        raise ValueError(f"from {start} to {limit} by {delta} has no end")
    count = max(int(steps), 0)
    b.check_constant((count,), start.dtype)
    return b.constant((start + np.arange(count) * delta).astype(start.dtype))


@builds("EyeLike")
def eye_like(b: Builder, node: OnnxNode) -> str:
    """Ones on a diagonal, in the input's shape."""
    t = b.type(node.inputs[0])
    dtype = element_type(node.attrs["dtype"]) if "dtype" in node.attrs else t.dtype
    if t.rank != 2:
        raise ValueError(f"a tensor of rank {t.rank} is no matrix")
    rows, columns = t.shape
    b.check_constant(t.shape, dtype)
    return b.constant(np.eye(rows, columns, node.attrs.get("k", 0), dtype=dtype))
