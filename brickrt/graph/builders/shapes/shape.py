"""The same elements under another shape, and operators that do nothing at inference."""

from __future__ import annotations

import math

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import integers, normal_axes, normal_axis, optional, uses, view
from brickrt.graph.errors import Unsupported


@builds("Identity")
def identity(b: Builder, node: OnnxNode) -> str:
    """The tensor as it is."""
    return node.inputs[0]


@builds("Dropout")
def dropout(b: Builder, node: OnnxNode) -> str | tuple[str, ...]:
    """Nothing, and a mask of ones; in training it runs on the host."""
    x, training = node.inputs[0], optional(node, 2)
    if training and b.value(training).any():
        raise Unsupported("Dropout in training")
    if len(node.outputs) == 1:
        return x
    dtype = np.dtype(bool) if node.version >= 10 else b.type(x).dtype
    return x, b.constant(np.ones(b.type(x).shape, dtype)) if uses(b, node, 1) else ""


@builds("Reshape")
def reshape(b: Builder, node: OnnxNode) -> str:
    """0 keeps a dimension unless `allowzero`; -1 takes what is left."""
    shape = b.type(node.inputs[0]).shape
    wanted = integers(b, node, 1, "shape") or []
    if not node.attrs.get("allowzero", 0):
        if 0 in wanted[len(shape) :]:
            raise ValueError(f"shape {wanted} keeps a dimension that {list(shape)} does not have")
        wanted = [shape[k] if d == 0 else d for k, d in enumerate(wanted)]
    if -1 in wanted:
        rest = math.prod(d for d in wanted if d != -1)
        wanted[wanted.index(-1)] = math.prod(shape) // rest if rest else 0
    return view(b, node.inputs[0], wanted)


@builds("Flatten")
def flatten(b: Builder, node: OnnxNode) -> str:
    """The tensor as a matrix: axes before `axis` are rows."""
    shape = b.type(node.inputs[0]).shape
    axis = node.attrs.get("axis", 1)
    axis += len(shape) if axis < 0 else 0
    if not 0 <= axis <= len(shape):
        raise ValueError(f"axis {node.attrs['axis']} is outside {-len(shape)} to {len(shape)}")
    return view(b, node.inputs[0], (math.prod(shape[:axis]), math.prod(shape[axis:])))


@builds("Squeeze")
def squeeze(b: Builder, node: OnnxNode) -> str:
    """The tensor without axes of extent 1, those given or all."""
    shape = b.type(node.inputs[0]).shape
    axes = integers(b, node, 1, "axes")
    dropped = [k for k, d in enumerate(shape) if d == 1] if axes is None else normal_axes(axes, len(shape))
    if any(shape[k] != 1 for k in dropped):
        raise ValueError(f"cannot squeeze axes {list(dropped)} of shape {list(shape)}")
    return view(b, node.inputs[0], [d for k, d in enumerate(shape) if k not in dropped])


@builds("Unsqueeze")
def unsqueeze(b: Builder, node: OnnxNode) -> str:
    """The tensor with axes of extent 1 added."""
    shape = b.type(node.inputs[0]).shape
    axes = integers(b, node, 1, "axes") or []
    rank = len(shape) + len(axes)
    added = {normal_axis(axis, rank) for axis in axes}
    if len(added) < len(axes):
        raise ValueError(f"axes {list(axes)} name one axis twice")
    extents = iter(shape)
    return view(b, node.inputs[0], [1 if k in added else next(extents) for k in range(rank)])
