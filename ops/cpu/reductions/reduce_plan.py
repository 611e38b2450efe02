"""How a reduction walks its input: which dimensions merge, and which way the vectors lie.

The domain is input 0. A plain domain has vectors along its innermost moving dimension, a blocked one along channels.
A span is a run of merged dimensions, indexed by the innermost of them, while the others stay at index 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.operands.operand_access import Access, access
from brickrt.ops.cpu.operands.rows import row_dim
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.types import Boxes


@dataclass(frozen=True)
class MergedDims:
    """`extent` elements along `dims`, outermost first."""

    dims: tuple[int, ...]
    extent: int
    reduced: bool

    @property
    def dim(self) -> int:
        """The dimension that indexes the span."""
        return self.dims[-1]


@dataclass(frozen=True)
class ReducePlan:
    """`ins` as the kernel finds them in memory (constants packed)."""

    op: Reduce
    ins: tuple[Operand, ...]
    out: Operand

    @property
    def domain(self) -> Operand:
        """The input that is reduced, whose dimensions are walked."""
        return self.ins[0]

    @property
    def blocked(self) -> bool:
        """Whether vectors hold channels of one pixel."""
        return self.domain.block > 1

    @cached_property
    def lane_dim(self) -> int:
        """The dimension of the domain that vectors lie along."""
        return 1 if self.blocked else max(row_dim(self.domain), 0)

    @property
    def lanes_reduced(self) -> bool:
        """Whether the lanes of a vector are combined."""
        return self.lane_dim in self.op.axes

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        """How the domain's vectors read each input."""
        return tuple(access(o, self.domain, row_dim(self.domain)) for o in self.ins)

    @cached_property
    def out_dims(self) -> tuple[int | None, ...]:
        """Per dimension of the domain that of the output; None where reduced."""
        kept = [d for d in range(len(self.domain.shape)) if d not in self.op.axes]
        place = {d: d if self.op.keepdims else k for k, d in enumerate(kept)}
        return tuple(place.get(d) for d in range(len(self.domain.shape)))

    @cached_property
    def out_access(self) -> Access:
        """Where the output of an element of the domain lies."""
        strides = tuple(0 if d is None else self.out.strides[d] for d in self.out_dims)
        lane = 1 if self.out_lanes_adjacent else strides[self.lane_dim]
        return Access(self.out.dtype, strides, self.out.block, lane)

    @property
    def out_lanes_adjacent(self) -> bool:
        """Whether adjacent lanes of kept vectors are adjacent in the output."""
        if self.blocked and self.out.block > 1:
            return not self.lanes_reduced
        to = self.out_dims[self.lane_dim]
        return to is not None and self.out.strides[to] == 1

    def check(self) -> None:
        """Raises ValueError for a blocked output that is no image of the domain's channels."""
        if self.out.block == 1:
            return
        if self.out_dims[1] not in (None, 1) or not (self.blocked or self.lanes_reduced):
            raise ValueError(f"Reduce over axes {list(self.op.axes)} cannot write a blocked output: plan it as plain")

    @cached_property
    def moving(self) -> list[int]:
        """Dimensions that are walked: those of extent other than 1, and the lanes' own."""
        return [d for d, e in enumerate(self.domain.shape) if e != 1 or d == self.lane_dim]

    def joins(self, outer: int, inner: int) -> bool:
        """Whether adjacent moving dimensions can be walked as one, if the boxes cover the inner one."""
        if (outer in self.op.axes) != (inner in self.op.axes):
            return False
        lie = [*self.accesses, self.out_access]
        if (outer <= 1 and any(a.block > 1 for a in lie)) or (self.blocked and outer == 1):
            return False
        return all(a.strides[outer] == a.strides[inner] * self.domain.shape[inner] for a in lie)

    def kept_joins(self) -> list[int]:
        """The kept dimensions that join the moving one before them if a box covers them."""
        pairs = zip(self.moving, self.moving[1:])
        return [b for a, b in pairs if b not in self.op.axes and self.joins(a, b)]

    def classify(self, boxes: Boxes) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """Boxes by the dimensions that join: a class is the list of those."""
        dims = self.kept_joins()
        if not dims:
            return np.zeros(len(boxes), np.int64), [()]
        at = [to for to in (self.out_dims[d] for d in dims) if to is not None]
        covered = (boxes.lo[:, at] == 0) & (boxes.hi[:, at] == np.array([self.domain.shape[d] for d in dims]))
        rows, which = np.unique(covered, axis=0, return_inverse=True)
        return which.ravel(), [tuple(d for d, yes in zip(dims, row, strict=True) if yes) for row in rows]

    def spans(self, joined: Sequence[int]) -> list[MergedDims]:
        """The domain outermost first, with kept dimensions joined as a class of `classify` says."""
        spans: list[MergedDims] = []
        for d in self.moving:
            reduced, extent = d in self.op.axes, self.domain.shape[d]
            last = spans[-1] if spans else None
            if last and (d in joined or (reduced and self.joins(last.dim, d))):
                spans[-1] = MergedDims((*last.dims, d), last.extent * extent, reduced)
            else:
                spans.append(MergedDims((d,), extent, reduced))
        return spans
