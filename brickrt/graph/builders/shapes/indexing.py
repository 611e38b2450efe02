"""Reading at positions: constants, or where they are computed, rows of a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import elementwise, normal_axis, optional, take, view
from brickrt.graph.builders.scalar import like, where
from brickrt.graph.errors import Unsupported
from brickrt.graph.ir import Node
from brickrt.ops.expr import Apply, Arg
from brickrt.ops.operators.gather_rows import GatherRows
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import Transpose, View

T = TypeVar("T")
# A table is part of the plan, so it must stay small beside the tensors.
MOST_INDICES = 1 << 16


def constant_positions(b: Builder, node: OnnxNode, most: int = MOST_INDICES) -> np.ndarray:
    """The second input of a node, of which a table is made. Raises Unsupported where it is not known, or too large."""
    indices = b.known(node.inputs[1])
    if indices is None:
        raise Unsupported(f"{node.op_type} at positions known only when it runs")
    if indices.size > most:
        raise Unsupported(f"{node.op_type} at {indices.size} positions")
    return indices


@builds("Gather")
def gather(b: Builder, node: OnnxNode) -> str:
    """Elements at constant positions along an axis, or rows at positions that are computed and known to be inside."""
    x, shape = node.inputs[0], b.type(node.inputs[0]).shape
    axis = normal_axis(node.attrs.get("axis", 0), len(shape))
    if axis == 0 and b.known(node.inputs[1]) is None and b.cpu_operators:
        below = positions_below(b, node.inputs[1])
        if below is not None and below <= shape[0]:
            return _computed_rows(b, *node.inputs)
    indices = constant_positions(b, node)
    at = indices.reshape(-1).astype(np.int64, copy=False)
    if np.any((at < -shape[axis]) | (at >= shape[axis])):
        raise ValueError(f"an index is outside axis {axis} of {shape[axis]} elements")
    table = np.where(at < 0, at + shape[axis], at).tolist()
    return view(b, take(b, x, {axis: table}), (*shape[:axis], *indices.shape, *shape[axis + 1 :]))


def _computed_rows(b: Builder, x: str, at: str) -> str:
    rows, *rest = b.type(x).shape
    extents = b.type(at).shape
    table = view(b, x, (rows, math.prod(rest)))
    found = b.emit(GatherRows(), table, at if extents else view(b, at, (1,)))
    return view(b, found, (*extents, *rest))


def positions_below(b: Builder, name: str) -> int | None:
    """What all elements of a tensor are below and none is negative, as they are positions along an axis; None where
    that is not known."""

    def same_positions(node: Node) -> bool:
        return isinstance(node.op, View | Transpose) or is_cast(node, (np.int32, np.int64))

    return noted(b, name, b.bounds, same_positions)


def noted(b: Builder, name: str, notes: Mapping[str, T], same: Callable[[Node], bool]) -> T | None:
    """What is noted of a tensor, or of the one that it is but for nodes that leave this the `same`."""
    tensor, producers = b.resolve(name), {node.output: node for node in b.nodes}
    while tensor not in notes:
        node = producers.get(tensor)
        if node is None or not same(node):
            return None
        tensor = node.inputs[0]
    return notes[tensor]


def is_cast(node: Node, types: Collection[type]) -> bool:
    """Whether a node only changes the type of elements, to one of these."""
    expr = node.op.expr if isinstance(node.op, Map) else None
    return isinstance(expr, Apply) and expr.fn == "cast" and expr.dtype in types and isinstance(expr.args[0], Arg)


@builds("GatherND")
def gather_parts(b: Builder, node: OnnxNode) -> str:
    """The parts of a tensor at constant positions along its first axes, as a Gather along all of these in one."""
    x, indices = node.inputs[0], constant_positions(b, node)
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


@builds("GatherElements")
def gather_elements(b: Builder, node: OnnxNode) -> str:
    """Elements at constant positions along an axis. The first and last axes along which all positions are alike stay;
    those between them are one axis of a Gather."""
    x, indices = node.inputs[0], constant_positions(b, node, MOST_INDICES << 4)
    shape = b.type(x).shape
    axis = normal_axis(node.attrs.get("axis", 0), len(shape))
    check_rank(indices, len(shape))
    if any(n > e for k, (n, e) in enumerate(zip(indices.shape, shape, strict=True)) if k != axis):
        raise ValueError(f"indices {list(indices.shape)} do not suit a tensor {list(shape)}")
    if not indices.size:
        raise Unsupported("no positions")
    if np.any((indices < -shape[axis]) | (indices >= shape[axis])):
        raise ValueError(f"an index is outside axis {axis} of {shape[axis]} elements")
    alike = [k != axis and indices.shape[k] == e and _alike(indices, k) for k, e in enumerate(shape)]
    first, end = alike.index(False), len(shape) - alike[::-1].index(False)
    part = indices[(0,) * first][(..., *(0,) * (len(shape) - end))]
    if part.size > MOST_INDICES:
        raise Unsupported(f"{node.op_type} at {part.size} positions")
    at = np.indices(part.shape, np.int64)
    at[axis - first] = np.where(part < 0, part + shape[axis], part)
    table = np.ravel_multi_index(tuple(at.reshape(len(at), -1)), shape[first:end]).tolist()
    rows = view(b, x, (*shape[:first], math.prod(shape[first:end]), *shape[end:]))
    return view(b, take(b, rows, {first: table}), indices.shape)


def check_rank(indices: np.ndarray, rank: int) -> None:
    """Raises ValueError for indices of elements that have not the rank of the data."""
    if indices.ndim != rank:
        raise ValueError(f"indices of {indices.ndim} dimensions do not suit data of {rank}")


def _alike(indices: np.ndarray, axis: int) -> bool:
    """Whether indices are the same all along an axis."""
    return bool((indices == indices.take([0], axis)).all())


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
