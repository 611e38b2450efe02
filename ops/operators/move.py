"""Operators that move elements and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from brickrt.ops.base import Op, Slab, crop
from brickrt.ops.regions import TableRange, box_shape, settle
from brickrt.ops.types import Boxes, TensorType
from brickrt.ops.view import view_elements, view_region


class _Move(Op):
    """Base of operators without arithmetic."""

    def flops(self, ins: Sequence[TensorType], out: TensorType) -> int:
        """None."""
        return 0


@dataclass(frozen=True)
class Take(_Move):
    """Per axis a table: output index i reads input index table[i]; -1 reads `fill`; no table keeps the axis.

    Slice, Split, Pad in all modes, nearest Resize, Expand, Tile and Gather with constant indices are all this.
    """

    name: ClassVar[str] = "Take"
    tables: tuple[tuple[int, ...] | None, ...]
    fill: float | int | bool = 0

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """A table's length is the extent of its axis. Raises ValueError for entries out of range."""
        (x,) = ins
        if len(self.tables) != x.rank:
            raise ValueError(f"Take: tables for {len(self.tables)} axes, input {x}")
        for axis, table in enumerate(self.tables):
            if table and (min(table) < -1 or max(table) >= x.shape[axis]):
                raise ValueError(f"Take: axis {axis} reads outside of input {x}")
        shape = tuple(e if t is None else len(t) for e, t in zip(x.shape, self.tables, strict=True))
        return TensorType(shape, x.dtype)

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """Along axes with tables, from the least to the greatest entry that is not -1."""
        lo, hi = boxes.lo.copy(order="K"), boxes.hi.copy(order="K")
        for axis, table in enumerate(self.tables):
            if table is not None:
                ranges = self._ranges(axis, ins[0].shape[axis])
                lo[:, axis], hi[:, axis] = ranges(boxes.lo[:, axis], boxes.hi[:, axis])
        # Where one axis reads nothing, no element is read at all.
        return settle(Boxes(lo, hi), lo, hi, ins[0].shape)

    @cached_property
    def _known_ranges(self) -> dict[tuple[int, int], TableRange]:
        return {}

    def _ranges(self, axis: int, extent: int) -> TableRange:
        """What ranges of the output's axis read of the input's."""
        if (axis, extent) not in self._known_ranges:
            entries = np.asarray(self.tables[axis], np.int64)
            # An entry of -1 reads nothing: its least is above its most.
            self._known_ranges[axis, extent] = TableRange(np.where(entries < 0, extent, entries), entries, extent)
        return self._known_ranges[axis, extent]

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """Looks up one axis after the other."""
        shape = box_shape(box)
        region = self.region(0, box, ins, out)
        if 0 in shape or region.volumes[0] == 0:
            return np.full(shape, self.fill, out.dtype)
        x = crop(slabs[0], region)
        for axis, table in enumerate(self.tables):
            if table is not None:
                part = table[int(box.lo[0, axis]) : int(box.hi[0, axis])]
                x = _look_up(x, axis, np.asarray(part, np.int64), int(region.lo[0, axis]), self.fill)
        return np.array(x)


def _look_up(x: np.ndarray, axis: int, entries: np.ndarray, origin: int, fill: float | int | bool) -> np.ndarray:
    """`x`, whose index 0 along `axis` is `origin` of the tensor, at the entries of a table."""
    result = np.take(x, np.where(entries < 0, 0, entries - origin), axis)
    if (entries < 0).any():
        index: list[slice | np.ndarray] = [slice(None)] * x.ndim
        index[axis] = entries < 0
        result[tuple(index)] = fill
    return result


@dataclass(frozen=True)
class Concat(_Move):
    """The inputs one after the other along `axis`, which is not negative."""

    name: ClassVar[str] = "Concat"
    axis: int

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """Inputs agree in all but the axis."""
        first = ins[0]
        if not 0 <= self.axis < first.rank:
            raise ValueError(f"Concat: axis {self.axis} of inputs {', '.join(map(str, ins))}")
        shape = list(first.shape)
        shape[self.axis] = sum(t.shape[self.axis] for t in ins if t.rank == first.rank)
        for t in ins:
            others = (*t.shape[: self.axis], shape[self.axis], *t.shape[self.axis + 1 :])
            if t.rank != first.rank or t.dtype != first.dtype or list(others) != shape:
                raise ValueError(f"Concat: {t} does not go with {first} along axis {self.axis}")
        return TensorType(tuple(shape), first.dtype)

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """The box shifted to where the input begins; mostly empty for boxes that other inputs fill."""
        offset = np.zeros(out.rank, np.int64)
        offset[self.axis] = sum(t.shape[self.axis] for t in ins[:i])
        return settle(boxes, boxes.lo - offset, boxes.hi - offset, ins[i].shape)

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """Concatenates what the box has of each input."""
        shape = box_shape(box)
        if 0 in shape:
            return np.empty(shape, out.dtype)
        return np.concatenate([crop(s, self.region(i, box, ins, out)) for i, s in enumerate(slabs)], axis=self.axis)


@dataclass(frozen=True)
class Transpose(_Move):
    """Output axis k is input axis perm[k]."""

    name: ClassVar[str] = "Transpose"
    perm: tuple[int, ...]

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """Raises ValueError where `perm` is no permutation of the axes."""
        (x,) = ins
        if sorted(self.perm) != list(range(x.rank)):
            raise ValueError(f"Transpose: {list(self.perm)} is no permutation of the axes of {x}")
        return TensorType(tuple(x.shape[axis] for axis in self.perm), x.dtype)

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """The same ranges, axes permuted back."""
        inverse = np.argsort(self.perm)
        return settle(boxes, boxes.lo[:, inverse], boxes.hi[:, inverse], ins[0].shape)

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """A contiguous copy of the transposed region."""
        shape = box_shape(box)
        if 0 in shape:
            return np.empty(shape, out.dtype)
        return np.array(np.transpose(crop(slabs[0], self.region(0, box, ins, out)), self.perm), order="C")


@dataclass(frozen=True)
class View(_Move):
    """The same elements in row-major order under another shape (Reshape, Flatten, Squeeze …)."""

    name: ClassVar[str] = "View"
    shape: tuple[int, ...]

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """Raises ValueError where the numbers of elements differ."""
        (x,) = ins
        out = TensorType(self.shape, x.dtype)
        if out.size != x.size or any(e < 0 for e in out.shape):
            raise ValueError(f"View: {x} has {x.size} elements, shape {list(self.shape)} has {out.size}")
        return out

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """See `view_region`: exact or a bounding box."""
        return view_region(boxes, ins[0].shape, out.shape)

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """See `view_elements`."""
        shape = box_shape(box)
        if 0 in shape:
            return np.empty(shape, out.dtype)
        region = self.region(0, box, ins, out)
        return view_elements(crop(slabs[0], region), region, box, ins[0].shape, out.shape)


@dataclass(frozen=True)
class Reorder(_Move):
    """The same tensor in another memory layout; its values do not change."""

    name: ClassVar[str] = "Reorder"
    layout: Literal["plain", "blocked", "last"]

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """The input's type."""
        (x,) = ins
        return x

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """The same box."""
        return settle(boxes, boxes.lo, boxes.hi, ins[0].shape)

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """A copy: NumPy arrays are row-major whatever the layout."""
        shape = box_shape(box)
        return np.empty(shape, out.dtype) if 0 in shape else np.array(crop(slabs[0], box))
