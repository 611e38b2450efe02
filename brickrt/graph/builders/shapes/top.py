"""The k greatest or least elements along an axis of an image: rounds, of which each finds what comes after the last.

NaN comes first, as for ArgMax, then what is greater (or less), and of equal elements the first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import Combine, normal_axis, reduce, require_image
from brickrt.graph.builders.scalar import either, equal, greater, less, like, where
from brickrt.graph.builders.shapes.selection import counter
from brickrt.graph.errors import Unsupported
from brickrt.ops.expr import Expr, apply, const
from brickrt.ops.operators.move import Concat

INT64 = np.dtype(np.int64)
ROUNDS = 16  # of more, NumPy sorts


@builds("TopK")
def top_k(b: Builder, node: OnnxNode) -> tuple[str, str]:
    """Elements and their positions, sorted, whether asked for or not. Before opset 10 k is an attribute."""
    x, kind = node.inputs[0], b.type(node.inputs[0])
    require_image(b, x)
    axis = normal_axis(node.attrs.get("axis", -1), kind.rank)
    k = int(b.scalar(node.inputs[1]) if node.version >= 10 else node.attrs["k"])
    if not 0 < k <= min(ROUNDS, kind.shape[axis]):
        raise Unsupported(f"{k} of {kind.shape[axis]} elements: NumPy sorts")
    rounds = _Rounds(b, x, axis, bool(node.attrs.get("largest", 1)))
    found = [rounds.first()]
    b.bounds[b.resolve(found[0][1])] = kind.shape[axis]
    while len(found) < k:
        found.append(rounds.after(*found[-1]))
    values, places = zip(*found, strict=True)
    return _joined(b, axis, values), _joined(b, axis, places)


def _joined(b: Builder, axis: int, parts: tuple[str, ...]) -> str:
    return parts[0] if len(parts) == 1 else b.emit(Concat(axis), *parts)


class _Rounds:
    """Each gives the names of the element found, and of its position, [1] along the axis."""

    def __init__(self, b: Builder, x: str, axis: int, largest: bool) -> None:
        self.b, self.x, self.axis, self.largest = b, x, axis, largest
        self.combine: Combine = "max" if largest else "min"
        self.counter = counter(b, x, axis)
        self.extent = b.type(x).shape[axis]

    def first(self) -> tuple[str, str]:
        """The most extreme one."""
        best = reduce(self.b, self.combine, (self.axis,), self.x)

        def place(value: Expr, top: Expr, index: Expr) -> Expr:
            return where(_same(value, top), index, like(index, self.extent))

        return best, self.place(place, best, self.counter)

    def after(self, last: str, at: str) -> tuple[str, str]:
        """The most extreme one of those that come after another, which is given with its position."""

        def left(value: Expr, last: Expr, at: Expr, index: Expr) -> Expr:
            return where(self.follows(value, last, at, index), value, self.nothing(value))

        best = reduce(self.b, self.combine, (self.axis,), self.x, last, at, self.counter, pre=left)

        def place(value: Expr, top: Expr, last: Expr, at: Expr, index: Expr) -> Expr:
            hit = apply("and", self.follows(value, last, at, index), _same(value, top))
            return where(hit, index, like(index, self.extent))

        return best, self.place(place, best, last, at, self.counter)

    def place(self, candidate: Callable[..., Expr], *operands: str) -> str:
        """The least of the positions that are candidates."""
        return reduce(self.b, "min", (self.axis,), self.x, *operands, pre=candidate, dtype=INT64)

    def follows(self, value: Expr, last: Expr, at: Expr, index: Expr) -> Expr:
        """Whether an element comes after the last one."""
        behind = greater(index, at)
        found = either((less if self.largest else greater)(value, last), apply("and", equal(value, last), behind))
        if value.dtype.kind != "f":
            return found
        nan = apply("isnan", last)
        return where(apply("isnan", value), apply("and", nan, behind), either(nan, found))

    def nothing(self, value: Expr) -> Expr:
        """What no element is more extreme than."""
        if value.dtype.kind == "f":
            return const(-np.inf if self.largest else np.inf, value.dtype)
        limits = np.iinfo(value.dtype)
        return like(value, limits.min if self.largest else limits.max)


def _same(value: Expr, best: Expr) -> Expr:
    """Whether an element is the most extreme one: where there are NaN, those are."""
    hit = equal(value, best)
    return either(hit, apply("isnan", value)) if value.dtype.kind == "f" else hit
