"""How a row-wise operator walks its input: as a reduction does, and its output lies as its input does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brickrt.ops.cpu.operands.operand_access import Access, access
from brickrt.ops.cpu.operands.rows import row_dim
from brickrt.ops.cpu.reductions.reduce_plan import ReducePlan
from brickrt.ops.types import Boxes


@dataclass(frozen=True)
class RowPlan(ReducePlan):
    """`op` is the reduction of one step. With `whole`, boxes hold all of every row."""

    whole: bool = True

    @cached_property
    def out_dims(self) -> tuple[int | None, ...]:
        """All: an output per input."""
        return tuple(range(len(self.domain.shape)))

    @cached_property
    def out_access(self) -> Access:
        """As the input's."""
        return access(self.out, self.domain, row_dim(self.domain))

    def check(self) -> None:
        """Raises ValueError where the output's vectors do not lie as the input's do."""
        if self.out.block != self.domain.block or (self.blocked and self.out.shape[1] == 1):
            raise ValueError("Rowwise: input and output must be blocked alike, with more than one channel")
        if self.out_access.lane != 1 and self.out.shape[self.lane_dim] > 1:
            raise ValueError("Rowwise: the output must be dense along its rows")

    def joins(self, outer: int, inner: int) -> bool:
        """Rows that a box cuts stay as they are."""
        return (self.whole or outer not in self.op.axes) and super().joins(outer, inner)

    def classify(self, boxes: Boxes) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """A class is whether boxes hold whole rows (1 or 0), then the kept dimensions that join."""
        dims, axes = self.kept_joins(), list(self.op.axes)
        whole = np.array(self.domain.shape)
        covered = (boxes.lo == 0) & (boxes.hi == whole)
        keys = np.column_stack([covered[:, axes].all(axis=1), covered[:, dims]])
        rows, which = np.unique(keys, axis=0, return_inverse=True)
        classes = [(int(row[0]), *(d for d, yes in zip(dims, row[1:], strict=True) if yes)) for row in rows]
        return which.ravel(), classes
