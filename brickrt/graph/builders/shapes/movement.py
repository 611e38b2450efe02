"""Moving elements: joining, cutting, repeating, transposing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import integers, normal_axis, positive, take, transpose, uses, view
from brickrt.ops.definitions.slices import slice_start
from brickrt.ops.operators.move import Concat

LONG_AXIS_POSITIONS = 2**16
JOINED = 32
"""Most tensors that one operator joins: kernels have room for little more operands."""


@builds("Concat")
def concat(b: Builder, node: OnnxNode) -> str:
    """Joins tensors along an axis. Empty ones add nothing; more than JOINED are joined in several steps."""
    ranks = {b.type(name).rank for name in node.inputs}
    if len(ranks) > 1 or 0 in ranks:
        raise ValueError(f"tensors of rank {', '.join(map(str, sorted(ranks)))} cannot be joined")
    axis = normal_axis(node.attrs["axis"], ranks.pop())
    parts = [name for name in node.inputs if b.type(name).shape[axis]] or [node.inputs[0]]
    while len(parts) > 1:
        groups = [parts[k : k + JOINED] for k in range(0, len(parts), JOINED)]
        parts = [group[0] if len(group) == 1 else b.emit(Concat(axis), *group) for group in groups]
    return parts[0]


@builds("Split")
def split(b: Builder, node: OnnxNode) -> tuple[str, ...]:
    """Parts along an axis, of the sizes given or of equal ones, of which the last may be smaller (opset 18)."""
    x, count = node.inputs[0], len(node.outputs)
    if not b.type(x).rank:
        raise ValueError("a scalar cannot be split")
    axis = normal_axis(node.attrs.get("axis", 0), b.type(x).rank)
    extent = b.type(x).shape[axis]
    asked = integers(b, node, 1, "split")
    if node.attrs.get("num_outputs", count) != count:
        raise ValueError(f"num_outputs is {node.attrs['num_outputs']}, the node has {count}")
    if asked and sum(asked) != extent:
        raise ValueError(f"split {asked} does not add up to the {extent} of axis {axis}")
    sizes = asked or [-(-extent // count)] * count
    bounds = np.minimum(np.cumsum([0, *sizes]), extent).tolist()
    tables = [range(lo, hi) for lo, hi in pairwise(bounds)]
    return tuple(take(b, x, {axis: t}) if uses(b, node, k) else "" for k, t in enumerate(tables))


@builds("Slice")
def cut(b: Builder, node: OnnxNode) -> str:
    """Slice: a range of positions along each of some axes."""
    x = node.inputs[0]
    shape = b.type(x).shape
    starts, ends = integers(b, node, 1, "starts") or [], integers(b, node, 2, "ends") or []
    axes = integers(b, node, 3, "axes")
    steps = integers(b, node, 4, "steps")
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(steps):
        raise ValueError(f"it has {len(starts)} starts, {len(ends)} ends and {len(steps)} steps")
    axes = [normal_axis(axis, len(shape)) for axis in (range(len(starts)) if axes is None else axes)]
    spans = {
        axis: range(shape[axis])[slice_start(start, shape[axis], step) : end : step]
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True)
    }
    return take(b, x, spans)


@builds("Transpose")
def permute(b: Builder, node: OnnxNode) -> str:
    """The axes in another order, reversed by default."""
    rank = b.type(node.inputs[0]).rank
    perm = node.attrs.get("perm") or range(rank)[::-1]
    if len(perm) != rank:
        raise ValueError(f"perm {list(perm)} does not suit a tensor of rank {rank}")
    return transpose(b, node.inputs[0], perm)


@builds("Tile")
def tile(b: Builder, node: OnnxNode) -> str:
    """The tensor repeated along each axis."""
    x = node.inputs[0]
    repeats = list(zip(b.type(x).shape, integers(b, node, 1, "repeats") or [], strict=True))
    if any(n < 0 for _, n in repeats):
        raise ValueError(f"repeats {[n for _, n in repeats]} must be at least 0")
    b.check_tables([d * n for d, n in repeats], b.type(x).dtype)
    return take(b, x, {k: tuple(range(d)) * n for k, (d, n) in enumerate(repeats)})


@builds("Expand")
def expand(b: Builder, node: OnnxNode) -> str:
    """The tensor broadcast together with a shape."""
    shape = tuple(integers(b, node, 1, "shape") or ())
    return expanded(b, node.inputs[0], shape)


def expanded(b: Builder, x: str, shape: Sequence[int]) -> str:
    """The tensor broadcast together with `shape`."""
    b.check_room((1,) * len(shape), b.type(x).dtype)  # before NumPy's own error, which is no ValueError
    target = np.broadcast_shapes(b.type(x).shape, tuple(shape))
    source = (1,) * (len(target) - b.type(x).rank) + b.type(x).shape
    b.check_room(target, b.type(x).dtype)
    spread = [n for d, n in zip(source, target, strict=True) if d != n]
    b.check_tables([n // outer + outer for n in spread for outer in [_outer(n)]], b.type(x).dtype)
    given = view(b, x, source)
    found = _repeated(b, given, {k: n for k, (d, n) in enumerate(zip(source, target, strict=True)) if d != n})
    if found != given:
        b.spread[b.resolve(found)] = given
    return found


def _outer(times: int) -> int:
    """How often is repeated again what is repeated first, where both make so many times; 1 where that is little."""
    return next((d for d in range(math.isqrt(times), 1, -1) if times % d == 0), 1) if times > LONG_AXIS_POSITIONS else 1


def _repeated(b: Builder, x: str, times: dict[int, int]) -> str:
    """The tensor repeated along axes of 1. What is repeated very often is so in two steps: tables have an entry for
    each position."""
    for axis in (axis for axis, n in times.items() if n > LONG_AXIS_POSITIONS):
        n, shape = times[axis], b.type(x).shape
        outer = _outer(n)
        if outer > 1:
            split = view(b, x, (*shape[:axis], 1, 1, *shape[axis + 1 :]))
            both = take(b, split, {axis: (0,) * outer, axis + 1: (0,) * (n // outer)})
            x = view(b, both, (*shape[:axis], n, *shape[axis + 1 :]))
    return take(b, x, {axis: (0,) * n for axis, n in times.items() if b.type(x).shape[axis] != n})


@builds("DepthToSpace")
def depth_to_space(b: Builder, node: OnnxNode) -> str:
    """Channels moved into blocks of pixels."""
    n, c, h, w = b.type(node.inputs[0]).shape
    size = positive(node, "blocksize")
    depth = c // size**2
    if node.attrs.get("mode", "DCR") == "DCR":
        blocks = view(b, node.inputs[0], (n, size, size, depth, h, w))
        moved = transpose(b, blocks, (0, 3, 4, 1, 5, 2))
    else:
        blocks = view(b, node.inputs[0], (n, depth, size, size, h, w))
        moved = transpose(b, blocks, (0, 1, 4, 2, 5, 3))
    return view(b, moved, (n, depth, h * size, w * size))


@builds("SpaceToDepth")
def space_to_depth(b: Builder, node: OnnxNode) -> str:
    """Blocks of pixels moved into channels."""
    n, c, h, w = b.type(node.inputs[0]).shape
    size = positive(node, "blocksize")
    blocks = view(b, node.inputs[0], (n, c, h // size, size, w // size, size))
    perm = (0, 3, 5, 1, 2, 4) if node.attrs.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return view(b, transpose(b, blocks, perm), (n, c * size**2, h // size, w // size))
