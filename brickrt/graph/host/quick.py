"""Small nodes without ONNX's reference: what it does around a node takes ten times as long as NumPy's call.

Loops and embeddings consist of such: elements gathered, ranges cut out, a state joined to another, numbers counted,
words of a text numbered where they are no padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from brickrt.graph.builder import OnnxNode
from brickrt.graph.host.operators.order.greatest_elements import greatest_elements
from brickrt.graph.host.operators.placed_elements import gathered_elements, scattered, scattered_elements, sliced
from brickrt.graph.host.operators.sampled_points import sampled
from brickrt.ops.types import MOST_DIMENSIONS

QUICK_ELEMENTS = 1 << 18
"""Elements that a node may read and give: there is always room and time for so few."""
QUICK_COMPILED_ELEMENTS = 1 << 21
"""The same of loops that are compiled, here or in NumPy, and take no arrays beside a copy of what they read or give."""

Arrays = Sequence[np.ndarray | None]


class NotQuick(Exception):
    """The reference computes this, or says what is wrong with it."""


def quick_outputs(node: OnnxNode, arrays: Mapping[str, Any]) -> list[Any] | None:
    """The outputs of a node as the reference gives them; None where it must compute them, or refuse to."""
    run = _QUICK.get(node.op_type) if not node.domain else None
    if run is None or len(node.outputs) != (2 if run is _greatest else 1) or not all(node.outputs):
        return None
    given = [arrays[name] if name else None for name in node.inputs]
    for x in given:
        if x is not None and (type(x) is not np.ndarray or x.dtype.kind not in "iufb"):
            return None
    try:
        found = run(node, given)
        return [*found] if isinstance(found, tuple) else [found]
    except (NotQuick, ValueError, IndexError, TypeError, OverflowError):  # the reference finds it, too, and says it
        return None


def _small(elements: float, most: int = QUICK_ELEMENTS) -> None:
    if elements > most:
        raise NotQuick


def _some(x: np.ndarray | None) -> np.ndarray:
    if x is None:
        raise NotQuick
    return x


def _sizes(arrays: Arrays) -> int:
    return sum(x.size for x in arrays if x is not None)


def _gather(node: OnnxNode, given: Arrays) -> np.ndarray:
    x, at = map(_some, given)
    axis = node.attrs.get("axis", 0)
    _small(at.size * (x.size // max(1, x.shape[axis])), QUICK_COMPILED_ELEMENTS)
    return np.asarray(x.take(at, axis))


def _gather_elements(node: OnnxNode, given: Arrays) -> np.ndarray:
    _small(_sizes(given), QUICK_COMPILED_ELEMENTS)
    x, at = map(_some, given)
    return gathered_elements(x, at, node.attrs.get("axis", 0))


def _gather_parts(node: OnnxNode, given: Arrays) -> np.ndarray:
    x, at = map(_some, given)
    if node.attrs.get("batch_dims", 0) or not at.ndim or not 0 < at.shape[-1] <= x.ndim:
        raise NotQuick
    _small(at.size * math.prod(x.shape[at.shape[-1] :]), QUICK_COMPILED_ELEMENTS)
    if at.shape[-1] == 1:
        return np.asarray(x.take(at[..., 0], 0))
    return np.asarray(x[tuple(at[..., k] for k in range(at.shape[-1]))])


def _chosen(node: OnnxNode, given: Arrays) -> np.ndarray:
    """Compress."""
    x, condition = map(_some, given)
    _small(2 * x.size, QUICK_COMPILED_ELEMENTS)
    axis = node.attrs.get("axis")
    if condition.ndim != 1 or not x.ndim:
        raise NotQuick
    return x.take(condition.nonzero()[0], axis)


def _reversed(node: OnnxNode, given: Arrays) -> np.ndarray:
    """ReverseSequence."""
    x, lengths = map(_some, given)
    _small(x.size, QUICK_COMPILED_ELEMENTS)
    axes = node.attrs.get("batch_axis", 1), node.attrs.get("time_axis", 0)
    out = np.empty(x.shape, x.dtype)
    parts, sources = (np.moveaxis(array, axes, (0, 1)) for array in (out, x))
    if len(parts) != lengths.size or lengths.min(initial=0) < 0 or lengths.max(initial=0) > parts.shape[1]:
        raise NotQuick
    for part, source, length in zip(parts, sources, lengths.tolist()):
        part[:length], part[length:] = source[:length][::-1], source[length:]
    return out


def _not_zero(node: OnnxNode, given: Arrays) -> np.ndarray:
    x = _some(given[0])
    _small(x.size)
    if not x.ndim:
        raise NotQuick
    return np.array(x.nonzero(), np.int64)


def _greatest(node: OnnxNode, given: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """TopK."""
    if len(given) != 2:
        raise NotQuick
    x, count = map(_some, given)
    _small(4 * x.size, QUICK_COMPILED_ELEMENTS)  # a copy, and where elements are
    axis, k = node.attrs.get("axis", -1), count.item()
    if not x.ndim or not 0 <= k <= x.shape[axis]:
        raise NotQuick
    return greatest_elements(x, k, axis, bool(node.attrs.get("largest", 1)))


def _grid_sample(node: OnnxNode, given: Arrays) -> np.ndarray:
    x, grid = map(_some, given)
    if x.ndim != grid.ndim or grid.shape[-1] != x.ndim - 2:
        raise NotQuick
    _small(x.size + grid.size + math.prod(x.shape[:2]) * math.prod(grid.shape[1:-1]), QUICK_COMPILED_ELEMENTS)
    how = node.attrs.get("mode", "linear"), node.attrs.get("padding_mode", "zeros")
    return _some(sampled(x, grid, *how, bool(node.attrs.get("align_corners", 0))))


def _cumulative_sum(node: OnnxNode, given: Arrays) -> np.ndarray:
    _small(_sizes(given))
    x, axis = map(_some, given)
    if x.dtype.kind not in "iu" or axis.ndim or node.attrs.get("exclusive") or node.attrs.get("reverse"):
        raise NotQuick
    return np.cumsum(x, axis.item(), x.dtype)


def _slice(node: OnnxNode, given: Arrays) -> np.ndarray:
    if node.version < 10:
        raise NotQuick
    x, starts, ends = map(_some, given[:3])
    axes, steps = (*given[3:], None, None)[:2]
    if steps is not None and 0 in steps:
        raise NotQuick
    part = sliced(x, starts, ends, axes, steps) if x.ndim else x
    _small(part.size)
    return part.copy()


def _range(node: OnnxNode, given: Arrays) -> np.ndarray:
    start, limit, step = map(_some, given)
    if start.dtype.kind != "i" or not start.size == limit.size == step.size == 1:
        raise NotQuick
    first, last, by = start.item(), limit.item(), step.item()
    _small(abs(last - first) / abs(by) if by else math.inf)
    return np.arange(first, last, by).astype(start.dtype)


def _concat(node: OnnxNode, given: Arrays) -> np.ndarray:
    _small(_sizes(given))
    parts = [_some(x) for x in given]
    if len({(x.ndim, x.dtype) for x in parts}) > 1:
        raise NotQuick
    return np.concatenate(parts, node.attrs["axis"])


def _expand(node: OnnxNode, given: Arrays) -> np.ndarray:
    x, extents = map(_some, given)
    shape = tuple(extents.tolist())
    if len(shape) > MOST_DIMENSIONS:
        raise NotQuick
    if len(shape) < x.ndim or 1 in shape:  # x may have more
        shape = np.broadcast_shapes(x.shape, shape)
    _small(x.size + math.prod(shape))
    out = np.empty(shape, x.dtype)
    out[...] = x
    return out


def _axes(node: OnnxNode, given: Arrays) -> tuple[int, ...]:
    """The axes that a node names, as an attribute or, since opset 13, as an input."""
    named = node.attrs.get("axes") if node.version < 13 else _some(given[1] if len(given) > 1 else None).tolist()
    if not isinstance(named, list) or not named or (node.version < 13 and named != sorted(map(abs, named))):
        raise NotQuick
    return tuple(named)


def _unsqueeze(node: OnnxNode, given: Arrays) -> np.ndarray:
    return np.expand_dims(_some(given[0]), _axes(node, given))


def _squeeze(node: OnnxNode, given: Arrays) -> np.ndarray:
    return np.squeeze(_some(given[0]), _axes(node, given))


def _scatter(node: OnnxNode, given: Arrays) -> np.ndarray:
    x, at, updates = _scattered(given)
    if updates.shape != at.shape:
        raise NotQuick
    return scattered_elements(x, at, updates, node.attrs.get("axis", 0), node.attrs.get("reduction"))


def _scatter_parts(node: OnnxNode, given: Arrays) -> np.ndarray:
    x, at, updates = _scattered(given)
    if not at.ndim or not 0 < at.shape[-1] <= x.ndim or updates.shape != (*at.shape[:-1], *x.shape[at.shape[-1] :]):
        raise NotQuick
    return scattered(x, tuple(at[..., k] for k in range(at.shape[-1])), updates, node.attrs.get("reduction"))


def _scattered(given: Arrays) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The operands of a scatter."""
    _small(_sizes(given), QUICK_COMPILED_ELEMENTS)
    x, at, updates = map(_some, given)
    if updates.dtype != x.dtype:
        raise NotQuick
    return x, at, updates


def _by(function: Callable[..., Any], kinds: str) -> Callable[[OnnxNode, Arrays], np.ndarray]:
    """An elementwise function of operands of one type, of these kinds."""

    def run(node: OnnxNode, given: Arrays) -> np.ndarray:
        operands = [_some(x) for x in given]
        if math.prod([x.size for x in operands]) > QUICK_ELEMENTS:  # else the result has no more, whatever its shape
            _small(math.prod(np.broadcast_shapes(*(x.shape for x in operands))))
        dtype = operands[0].dtype
        for x in operands:
            if x.dtype != dtype or dtype.kind not in kinds:
                raise NotQuick
        return np.asarray(function(*operands))

    return run


_QUICK: dict[str, Callable[[OnnxNode, Arrays], np.ndarray | tuple[np.ndarray, ...]]] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_parts,
    "Compress": _chosen,
    "ReverseSequence": _reversed,
    "NonZero": _not_zero,
    "TopK": _greatest,
    "GridSample": _grid_sample,
    "CumSum": _cumulative_sum,
    "Slice": _slice,
    "Range": _range,
    "Concat": _concat,
    "Expand": _expand,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "ScatterElements": _scatter,
    "ScatterND": _scatter_parts,
    "Add": _by(np.add, "iu"),
    "Sub": _by(np.subtract, "iu"),
    "Mul": _by(np.multiply, "iu"),
    "Equal": _by(np.equal, "iufb"),
    "Less": _by(np.less, "iuf"),
    "Greater": _by(np.greater, "iuf"),
    "And": _by(np.logical_and, "b"),
    "Or": _by(np.logical_or, "b"),
    "Not": _by(np.logical_not, "b"),
}
