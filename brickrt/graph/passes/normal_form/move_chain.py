"""Chains of moves as one: which elements of a source a tensor holds, and in which order.

The source is thought of as split into factors, axes of which a range is kept. The tensor has these in another order:

    x [197, 2304] ─ view [197, 3, 12, 64] ─ transpose [3, 12, 197, 64] ─ take [1:2]

    factors 197 · 3, of which one is kept · 12 · 64, in the order 12 · 197 · 64

From that follow the fewest operators that do the same: a View that splits, a Take, a Transpose, a View that joins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from brickrt.ops.base import Op
from brickrt.ops.operators.move import Take, Transpose, View
from brickrt.ops.types import Shape


@dataclass(frozen=True)
class Factor:
    """Indices lo … hi - 1 of `extent` along a factor of the source; `place` orders factors as the source has them."""

    place: tuple[int, ...]
    extent: int
    lo: int
    hi: int

    @property
    def size(self) -> int:
        """Indices that are kept."""
        return self.hi - self.lo

    @property
    def whole(self) -> bool:
        """Whether all of them are."""
        return self.size == self.extent

    def split(self, inner: int) -> tuple[Factor, Factor] | None:
        """The factor as two, of which the second has `inner` indices; None where it keeps no whole ones of these."""
        if self.extent % inner or self.lo % inner or self.hi % inner:
            return None
        outer = Factor((*self.place, 0), self.extent // inner, self.lo // inner, self.hi // inner)
        return outer, Factor((*self.place, 1), inner, 0, inner)

    def joined(self, inner: Factor) -> Factor:
        """This factor and the next one of the source as one; either one index is kept of this, or all of `inner`."""
        n = inner.extent
        if self.size == 1:
            return Factor(self.place, self.extent * n, self.lo * n + inner.lo, self.lo * n + inner.hi)
        return Factor(self.place, self.extent * n, self.lo * n, self.hi * n)


@dataclass(frozen=True)
class MoveChain:
    """A tensor of `shape`: factors of a source in this order, row-major. Of each of `fixed` one index is kept."""

    source: Shape
    shape: Shape
    factors: tuple[Factor, ...]
    fixed: tuple[Factor, ...] = ()

    @staticmethod
    def of(shape: Shape) -> MoveChain:
        """A tensor of this shape as it is."""
        return MoveChain(shape, shape, tuple(Factor((k,), e, 0, e) for k, e in enumerate(shape) if e != 1))

    def then(self, op: Op) -> MoveChain | None:
        """What a View, a Transpose or a Take makes of it; None where that has no such form."""
        match op:
            case View(shape=shape):
                return replace(self, shape=shape)
            case Transpose(perm=perm):
                axes = self.axes()
                order = None if axes is None else tuple(f for axis in perm for f in axes[axis])
                shape = tuple(self.shape[axis] for axis in perm)
                return None if order is None else replace(self, shape=shape, factors=order)
            case Take(tables=tables):
                return self._taken(tables)
        return None

    def axes(self) -> list[list[Factor]] | None:
        """The factors of each axis, after splitting those that several share; None where they cannot be split."""
        left = list(self.factors)
        axes: list[list[Factor]] = []
        for extent in reversed(self.shape):
            axis: list[Factor] = []
            while extent > 1:
                factor = left.pop()
                if factor.size > extent:
                    parts = factor.split(extent)
                    if parts is None:
                        return None
                    left.append(parts[0])
                    factor = parts[1]
                if extent % factor.size:
                    return None
                axis.insert(0, factor)
                extent //= factor.size
            axes.insert(0, axis)
        return axes

    def _taken(self, tables: Sequence[tuple[int, ...] | None]) -> MoveChain | None:
        axes = self.axes()
        if axes is None or not all(map(is_range, tables)):
            return None
        kept: list[Factor] = []
        for axis, extent, table in zip(axes, self.shape, tables, strict=True):
            part = axis if table is None or len(table) == extent else _range(axis, table[0], table[-1] + 1)
            if part is None:
                return None
            kept += part
        shape = tuple(e if t is None else len(t) for e, t in zip(self.shape, tables))
        return MoveChain(
            self.source,
            shape,
            tuple(f for f in kept if f.size > 1),
            (*self.fixed, *(f for f in kept if f.size == 1)),
        )

    # ---- as operators

    def operators(self) -> list[Op]:
        """View, Take, Transpose, View, each where it is needed."""
        axes = self.axes()
        factors = self.factors if axes is None else [f for axis in axes for f in axis]
        line = sorted((*factors, *self.fixed), key=lambda f: f.place)
        order = None if axes is None else self._by_axis(axes, list(line))
        if order is None:
            joined = _joined(list(factors), line)
            order = [*(f for f in line if f.size == 1), *joined]
        return self._steps(order)

    def _by_axis(self, axes: Sequence[list[Factor]], line: list[Factor]) -> list[Factor] | None:
        """A factor for each axis of the shape, in order; None where that is not possible."""
        found = [_joined(axis, line) for axis in axes]
        fixed = [f for f in line if f.size == 1]
        if any(len(axis) > 1 for axis in found) or len(fixed) > found.count([]):
            return None
        order: list[Factor] = []
        before: tuple[int, ...] = (-1,)
        for axis in found:
            factor = axis[0] if axis else fixed.pop(0) if fixed else Factor((*before, 2, len(order)), 1, 0, 1)
            order.append(factor)
            before = factor.place
        return order

    def _steps(self, order: list[Factor]) -> list[Op]:
        """The operators that make a tensor with these factors, and then of the shape."""
        split = sorted(order, key=lambda f: f.place)
        ops: list[Op] = []
        if (shape := tuple(f.extent for f in split)) != self.source:
            ops.append(View(shape))
        if not all(f.whole for f in split):
            ops.append(Take(tuple(None if f.whole else tuple(range(f.lo, f.hi)) for f in split)))
        moved = [f for f in order if f.size > 1]
        if moved != [f for f in split if f.size > 1]:
            ops.append(Transpose(tuple(split.index(f) for f in order)))
        else:
            order = split
        if tuple(f.size for f in order) != self.shape:
            ops.append(View(self.shape))
        return ops


def is_range(table: tuple[int, ...] | None) -> bool:
    """Whether a table of a Take keeps an axis, or some of it in order, and not nothing."""
    return table is None or (
        len(table) > 0 and table[0] >= 0 and table == tuple(range(table[0], table[0] + len(table)))
    )


def _range(axis: Sequence[Factor], lo: int, hi: int) -> list[Factor] | None:
    """Indices lo … hi - 1 of an axis with these factors."""
    if not axis:
        return []
    first, *rest = axis
    inner = math.prod(f.size for f in rest)
    place = lo // inner
    if place == (hi - 1) // inner:
        within = _range(rest, lo - place * inner, hi - place * inner)
        return None if within is None else [replace(first, lo=first.lo + place, hi=first.lo + place + 1), *within]
    if lo % inner or hi % inner:
        return None
    return [replace(first, lo=first.lo + place, hi=first.lo + hi // inner), *rest]


def _joined(order: list[Factor], line: list[Factor]) -> list[Factor]:
    """Fewer factors with the same elements in the same order. `line` are all factors as the source has them, in which
    they are joined too."""
    order = list(order)
    k = 0
    while k + 1 < len(line):
        outer, inner = line[k : k + 2]
        beside = outer in order and inner in order and order.index(inner) == order.index(outer) + 1 and inner.whole
        if beside or (outer.size == 1 and inner in order):
            joined = outer.joined(inner)
            order[order.index(inner)] = joined
            if beside:
                order.remove(outer)
            line[k : k + 2] = [joined]
        else:
            k += 1
    return order
