"""Rows of a table at positions that are data, as embeddings and codebooks are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Op, Slab, crop
from brickrt.ops.regions import box_shape, columns, settle
from brickrt.ops.types import Boxes, TensorType


@dataclass(frozen=True)
class GatherRows(Op):
    """table [rows, columns] at positions [extents…], integers from 0 to rows - 1: [extents…, columns].

    Kernels trust the positions: whoever makes such a node knows that they are inside.
    """

    name: ClassVar[str] = "GatherRows"

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """Raises ValueError for other ranks and types."""
        table, at = ins
        if table.rank != 2 or at.rank < 1 or at.dtype not in (np.int32, np.int64) or not table.shape[0]:
            raise ValueError(f"GatherRows: table {table}, positions {at}; give a matrix, and int32 or int64")
        return TensorType((*at.shape, table.shape[1]), table.dtype)

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """All rows of the table, in the columns of a box; the positions of the box."""
        lo, hi, shape = boxes.lo, boxes.hi, ins[i].shape
        if i:
            return settle(boxes, lo[:, :-1], hi[:, :-1], shape)
        n = len(boxes)
        return settle(boxes, columns(n, [0], lo[:, -1]), columns(n, shape[:1], hi[:, -1]), shape)

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """Raises IndexError for positions that are not inside."""
        if 0 in box_shape(box):
            return np.empty(box_shape(box), out.dtype)
        table, at = (crop(slab, self.region(i, box, ins, out)) for i, slab in enumerate(slabs))
        return np.take(table, at, 0)
