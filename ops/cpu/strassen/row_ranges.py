"""Which rows a kernel of Strassen's scheme must not mix: rows of too different sizes.

Each row is added to the rows at its place in the other parts of the box, its group, and to no others. Rounding is in
proportion to the largest row of a group, so the others err in proportion to a row that they have nothing to do with.
That is little unless one is 2**SPREAD times smaller, or a value is not finite: then the rows of the group are computed
again (`direct_rows.py`).

    norms: [group][part][lanes], sums of squares of a row's elements, added up while first factors are computed

A group is suspect by its norms. A close look at it then takes the largest magnitudes. Rows of zeros do not count there:
they are the bias, and are stored again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.emit.magnitudes import FOUR, fold_four, greatest_lane, kept_lanes, least_lane, magnitudes, may_mix
from brickrt.ops.cpu.strassen.direct_rows import DirectRows
from brickrt.ops.cpu.strassen.frame import StrassenFrame


@contextmanager
def mixed_matrices(frame: StrassenFrame) -> Iterator[list[Index]]:
    """Loop over the box's matrices: yields the index of each one's first output. After the body, which mixes its rows,
    looks at them."""
    f, k = frame.f, frame.k
    with f.loops(frame.view.batches(f)) as batch:
        corner = frame.view.corner(f, batch)
        frame.clear(k.norms_at, k.norms_elements)
        yield corner
        with f.loop(0, k.part_rows) as group, f.when(suspect(frame, group)), f.apart("again", group, *corner) as again:
            apart, (row, *place) = again
            DirectRows(type(frame)(k, apart), place).emit(row)


def suspect(frame: StrassenFrame, group: Index) -> ir.Value:
    """Whether a group of rows is suspect."""
    f, k, parts = frame.f, frame.k, 2**frame.k.levels
    norms = [f.load(frame.work, k.norm_at(f, group, n % parts), frame.dtype, k.lanes) for n in range(FOUR)]
    bits = magnitudes(f, fold_four(f, norms, k.lanes, f.b.fadd), kept_lanes(FOUR))
    return f.b.or_(frame.must_not_mix(), f.b.not_(may_mix(f, greatest_lane(f, bits), least_lane(f, bits))))
