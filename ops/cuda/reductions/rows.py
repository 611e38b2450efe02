"""How the elements of reduced rows lie in memory, and which threads take them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from brickrt.ops.cuda.kernel import THREADS
from brickrt.ops.cuda.operand import Operand
from brickrt.ops.types import Shape

Ints = tuple[int, ...]

ACROSS = 4
"""Rows across a vector, at most: more take registers, and less of a row is shared by threads."""
REGISTERS = 16
"""Words of a row that a thread may keep."""
CACHE = 32 << 10
"""Bytes of shared memory in which a block may keep a row."""
WARP_ROW = 4096
"""Elements of a row above which a block reads it faster than a warp, even where rows are plenty."""


@dataclass(frozen=True)
class DimensionRun:
    """Dimensions of a row that all operands see as one, outermost first; `strides` are from element to element."""

    dims: Ints
    extent: int
    strides: Ints


@dataclass(frozen=True)
class RowLayout:
    """The dimensions of the full `shape`: those that number rows, and those along rows.

    `strides[k]` are those of operand k, then of the output, per dimension of the shape, 0 where it broadcasts or has
    one element. `kept` number the rows and `runs` the elements of a row, outermost in memory first. `across`: a vector
    has one element of each of `vector` rows, not `vector` elements of one row.
    """

    shape: Shape
    strides: tuple[Ints, ...]
    kept: Ints
    runs: tuple[DimensionRun, ...]
    across: bool
    vector: int

    @property
    def vectors(self) -> int:
        """Vectors of the innermost run."""
        return -(-self.runs[-1].extent // (1 if self.across else self.vector))

    @cached_property
    def count(self) -> int:
        """Vectors of a row."""
        return math.prod(run.extent for run in self.runs[:-1]) * self.vectors

    def across_strides(self) -> Ints:
        """Per operand, the stride from one element of a vector to the next."""
        if self.across:
            return tuple(s[self.kept[-1]] for s in self.strides)
        return self.runs[-1].strides


def rows_of(shape: Shape, axes: Ints, ins: Sequence[Operand], out_strides: Ints, box: Sequence[int]) -> RowLayout:
    """Rows along `axes` of the shape, which input 0 has; `box` are the extents of the largest box, of that rank."""
    strides = (*(t.broadcast_strides(len(shape)) for t in ins), out_strides)
    order = sorted((d for d in range(len(shape)) if shape[d] != 1), key=lambda d: -strides[0][d])
    inner = order[-1] if order else axes[0]
    across = inner not in axes
    runs = _runs(shape, [d for d in order if d in axes], strides)
    vector = ins[0].vector if strides[0][inner] == 1 else 1
    room = min(shape[inner], box[inner], ACROSS) if across else runs[-1].extent
    while vector > max(1, room):
        vector //= 2
    return RowLayout(shape, strides, tuple(d for d in order if d not in axes), runs, across, vector)


def _runs(shape: Shape, dims: Sequence[int], strides: Sequence[Ints]) -> tuple[DimensionRun, ...]:
    """Dimensions in order of memory as few runs as possible; there is at least one."""
    runs: list[DimensionRun] = []
    for d in dims:
        steps = tuple(s[d] for s in strides)
        last = runs[-1] if runs else None
        if last is not None and all(o == s * shape[d] for o, s in zip(last.strides, steps)):
            runs[-1] = DimensionRun((*last.dims, d), last.extent * shape[d], steps)
        else:
            runs.append(DimensionRun((d,), shape[d], steps))
    return tuple(runs) or (DimensionRun((), 1, (0,) * len(strides)),)


@dataclass(frozen=True)
class Sharing:
    """Which threads share a row that vectors lie along, and where its elements are kept between sweeps.

    `lanes` of a warp share it, or the whole block where that is 0; `registers` are the vectors that each lane keeps,
    and `cached` tells whether the block keeps them in shared memory.
    """

    lanes: int
    registers: int = 0
    cached: bool = False


def choose_sharing(rows: RowLayout, words: int, box: Sequence[int]) -> Sharing:
    """How to share rows of which `words` words per element are kept; `box` are the extents of the largest box."""
    lanes = 1
    while lanes < min(rows.count, 32):
        lanes *= 2
    registers = -(-rows.count // lanes)
    elements = rows.count * rows.vector
    few = registers > 1 and math.prod(box[d] for d in rows.kept) * lanes < THREADS
    if words and not few and registers * rows.vector * words <= REGISTERS:
        return Sharing(lanes, registers)
    if not words and not few and elements <= WARP_ROW:
        return Sharing(lanes)
    return Sharing(0, cached=0 < 4 * words * elements <= CACHE)
