"""Take: slices, pads, repeats and gathers with constant indices."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from brickrt.ops.affine_tables import Affine, affine
from brickrt.ops.cuda.kernel import Kernel, computes
from brickrt.ops.cuda.printing import box_walk
from brickrt.ops.cuda.printing.box_walk import BoxWalk, WalkedOperand, bits_ctype, offset_literal
from brickrt.ops.cuda.printing.functions import declare_pointer, device_function
from brickrt.ops.operators.move import Take

ONE_BY_ONE = 4
ITEMS_LOOKED_UP = 2  # under way at most: each holds an address and its bounds


@computes(Take)
class TakeKernel(Kernel):
    """Axes whose tables are arithmetic become strides and bounds; the other tables are looked up in memory."""

    op: Take
    headers = (box_walk.HEADER,)

    @cached_property
    def axes(self) -> list[Affine | None]:
        """Per axis its table as arithmetic, None where it has to be looked up."""
        return [affine(t, e) for t, e in zip(self.op.tables, self.out.shape)]

    @cached_property
    def looked_up(self) -> list[int]:
        """The axes whose tables are in memory."""
        return [d for d, how in enumerate(self.axes) if how is None]

    def tables(self) -> tuple[np.ndarray, ...]:
        """The tables that are looked up, in the order of their axes."""
        return tuple(np.asarray(self.op.tables[d], np.int32) for d in self.looked_up)

    @cached_property
    def source(self) -> WalkedOperand:
        """The input along the output's dimensions, as far as axes are arithmetic."""
        x = self.ins[0]
        steps = [s * (1 if how is None else how.step) for s, how in zip(x.strides, self.axes)]
        shift = sum(s * how.start for s, how in zip(x.strides, self.axes) if how is not None)
        return WalkedOperand(bits_ctype(x.dtype), x.dtype.itemsize, tuple(steps), x.align, shift)

    @cached_property
    def walk(self) -> BoxWalk:
        """The walk over the box; only dimensions that keep their index may be joined."""
        kept = {
            d
            for d, (how, e) in enumerate(zip(self.axes, self.out.shape))
            if how == Affine(0, 1, 0, e) and e == self.ins[0].shape[d]
        }
        return BoxWalk(self.out, (self.source,), frozenset(range(self.out.rank)) - kept)

    @property
    def vector(self) -> int:
        """Elements per item, few where they are loaded one by one."""
        near = self.walk.inner is not None and self.source.strides[self.walk.inner] == 1
        return self.walk.vector if near and self.walk.inner not in self.looked_up else min(self.walk.vector, ONE_BY_ONE)

    def emit(self, name: str) -> str:
        """A loop over items, which read the fill where their indices are out of bounds."""
        if self.out.type.size == 0:
            return device_function(name)
        vector, kind = self.vector, self.source.type
        items = min(self.walk.unroll(vector), ITEMS_LOOKED_UP) if self.looked_up else self.walk.unroll(vector)
        tables = [declare_pointer(f"t{d}", 1 + len(self.ins) + k, "int") for k, d in enumerate(self.looked_up)]
        loads = [(f"brick::Vector<{kind}, {vector}> a[u]", "\n".join(self._item(vector)))]
        return device_function(
            name,
            declare_pointer("y", 0, kind),
            declare_pointer("x", 1, kind),
            *tables,
            f"const {kind} fill = {np.array(self.op.fill, self.out.dtype).view(f'u{self.out.dtype.itemsize}')}ull;",
            *self.walk.loop(vector, items, loads, ["const auto r = a[u];"]),
        )

    def _item(self, vector: int) -> list[str]:
        """Statements that read an item, of which some or all elements may be outside of the input."""
        inner, lines = self.walk.inner, ["{", "bool some = p[u].k < w.end;", "int lo = w.begin, hi = w.end;"]
        start = self.walk.offset(self.source.strides, "p[u].i", self.source.shift, self.looked_up)
        lines.append(f"auto row = x + ({start});")
        for d, how in enumerate(self.axes):
            index = self.walk.index(d, "p[u]")
            if d == inner:
                lines += [] if how is None else self._bounds(how, d)
            elif how is None:
                lines += [
                    f"const int j{d} = some ? t{d}[{index}] : -1;",
                    f"some &= j{d} >= 0;",
                    f"row += j{d} * {offset_literal(self.ins[0].strides[d])};",
                ]
            else:
                lines += self._inside(how, d, index)
        lines += ["if (!some) hi = lo;", f"a[u] = {self._read(vector)};", "}"]
        return lines

    def _bounds(self, how: Affine, dim: int) -> list[str]:
        below = [f"lo = lo < {how.lo} ? {how.lo} : lo;"] if how.lo > 0 else []
        return below + ([f"hi = hi > {how.hi} ? {how.hi} : hi;"] if how.hi < self.out.shape[dim] else [])

    def _inside(self, how: Affine, dim: int, index: str) -> list[str]:
        below = [f"some &= {index} >= {how.lo};"] if how.lo > 0 else []
        return below + ([f"some &= {index} < {how.hi};"] if how.hi < self.out.shape[dim] else [])

    def _read(self, vector: int) -> str:
        inner = self.walk.inner
        if inner is not None and self.axes[inner] is None:
            stride = offset_literal(self.ins[0].strides[inner])
            return f"brick::read_table<{vector}>(row, {stride}, t{inner}, p[u].k, lo, hi, fill)"
        return self.walk.read_row(self.source, vector, "row", "p[u].k", "lo", "hi", "fill")
