"""Reading at constant positions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import elementwise, normal_axis, optional, take, view
from brickrt.graph.builders.scalar import like, where
from brickrt.graph.errors import Unsupported

# A table is part of the plan, so it must stay small beside the tensors.
_MOST_INDICES = 1 << 16


def _constant_positions(b: Builder, node: OnnxNode) -> np.ndarray:
    """The second input of a node, of which a table is made. Raises Unsupported where it is not known, or too large."""
    indices = b.known(node.inputs[1])
    if indices is None:
        raise Unsupported(f"{node.op_type} at positions known only when it runs")
    if indices.size > _MOST_INDICES:
        raise Unsupported(f"{node.op_type} at {indices.size} positions")
    return indices


@builds("Gather")
def gather(b: Builder, node: OnnxNode) -> str:
    """Elements at constant positions along an axis."""
    x, indices = node.inputs[0], _constant_positions(b, node)
    shape = b.type(x).shape
    axis = normal_axis(node.attrs.get("axis", 0), len(shape))
    table = [int(k) + shape[axis] * (k < 0) for k in indices.reshape(-1)]
    if any(not 0 <= k < shape[axis] for k in table):
        raise ValueError(f"an index is outside axis {axis} of {shape[axis]} elements")
    return view(b, take(b, x, {axis: table}), (*shape[:axis], *indices.shape, *shape[axis + 1 :]))


@builds("GatherND")
def gather_parts(b: Builder, node: OnnxNode) -> str:
    """The parts of a tensor at constant positions along its first axes, as a Gather along all of these in one."""
    x, indices = node.inputs[0], _constant_positions(b, node)
    shape = b.type(x).shape
    at = _with_batches(indices, shape, node.attrs.get("batch_dims", 0))
    lead, rest = shape[: at.shape[-1]], shape[at.shape[-1] :]
    if len(lead) < at.shape[-1] or np.any((at < -np.array(lead)) | (at >= np.array(lead))):
        raise ValueError(f"indices {list(indices.shape)} are not all inside a tensor {list(shape)}")
    at = np.where(at < 0, at + np.array(lead), at)
    strides = [math.prod(lead[axis + 1 :]) for axis in range(len(lead))]
    table = (at @ np.array(strides, np.int64)).reshape(-1).tolist()
    rows = view(b, x, (math.prod(lead), *rest))
    return view(b, take(b, rows, {0: table}), (*indices.shape[:-1], *rest))


def _with_batches(indices: np.ndarray, shape: Sequence[int], batches: int) -> np.ndarray:
    """Indices [batch…, …, k] of parts of each batch, int64, as those of all: [batch…, …, batches + k]."""
    if not indices.ndim or not indices.shape[-1] or not 0 <= batches < indices.ndim:
        raise ValueError(f"indices {list(indices.shape)} name no positions")
    if indices.shape[:batches] != tuple(shape[:batches]):
        raise ValueError(f"indices {list(indices.shape)} are not for the {batches} batch axes of {list(shape)}")
    own = np.indices(indices.shape[:-1], np.int64)[:batches]
    return np.concatenate([np.moveaxis(own, 0, -1), indices.astype(np.int64)], -1)


@builds("Trilu")
def triangle(b: Builder, node: OnnxNode) -> str:
    """The upper or lower triangle of matrices, else 0."""
    x = node.inputs[0]
    name = optional(node, 1)
    offset = int(b.scalar(name)) if name else 0
    upper = node.attrs.get("upper", 1)
    rows, columns = b.type(x).shape[-2:]
    distance = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    mask = b.constant(distance >= offset if upper else distance <= offset)
    return elementwise(b, lambda m, x: where(m, x, like(x, 0)), mask, x)
