"""Transpose, Reorder, View and Concat: copies that change where elements lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

from brickrt.ops.base import Op
from brickrt.ops.cuda.kernel import Kernel, computes, kernel_for
from brickrt.ops.cuda.moves.copies import Copy
from brickrt.ops.cuda.operand import Operand
from brickrt.ops.cuda.printing import box_walk
from brickrt.ops.cuda.printing.box_walk import BoxWalk, WalkedOperand, bits_ctype, offset_literal
from brickrt.ops.cuda.printing.functions import declare_pointer, device_function
from brickrt.ops.operators.move import Concat, Reorder, Transpose, View
from brickrt.ops.types import Shape
from brickrt.ops.view import segments


@computes(Transpose, Reorder)
class CopyKernel(Kernel):
    """An output that consists of strided copies of inputs; here of a single one."""

    headers = (box_walk.HEADER,)

    @cached_property
    def copies(self) -> list[Copy]:
        """The copies that make up the output."""
        x = self.ins[0]
        strides: Sequence[int | None] = x.strides
        if isinstance(self.op, Transpose):
            strides = [x.strides[axis] for axis in self.op.perm]
        elif isinstance(self.op, View):
            strides = view_strides(x, self.out.shape)
        return [Copy(self.out, moved(x, [s or 0 for s in strides]), largest=self.largest)]

    @property
    def shared(self) -> int:
        """Copies run one after the other, and share it."""
        return max((c.shared for c in self.copies), default=0) if self.out.type.size else 0

    def emit(self, name: str) -> str:
        """The copies, one after the other."""
        copies = self.copies if self.out.type.size else []
        return device_function(name, *(line for c in copies for line in c.emit()))


@computes(Concat)
class ConcatKernel(CopyKernel):
    """All inputs in one walk, since boxes can be small; one after the other where their strides or tiles differ."""

    op: Concat

    @cached_property
    def copies(self) -> list[Copy]:
        """One copy per input that has elements, cut to where it lies in the output."""
        found, start = [], 0
        for slot, x in enumerate(self.ins):
            end = start + x.shape[self.op.axis]
            source = moved(x, x.strides, -start * x.strides[self.op.axis])
            if x.type.size:
                found.append(Copy(self.out, source, slot, (self.op.axis, start, end), self.largest))
            start = end
        return found

    def emit(self, name: str) -> str:
        """A single walk that chooses the input per item, or a walk for each copy."""
        kind = bits_ctype(self.out.dtype)
        walk = BoxWalk(self.out, tuple(c.source for c in self.copies), frozenset([self.op.axis]))
        if any(c.across is not None for c in self.copies) or len({walk.stride(s) for s in walk.sources}) != 1:
            return super().emit(name)
        vector = walk.vector
        if walk.inner == self.op.axis:  # no vector is of two inputs
            vector = math.gcd(vector, *(c.start for c in self.copies))
        loads = [(f"brick::Vector<{kind}, {vector}> a[u]", "\n".join(self._item(walk, vector)))]
        return device_function(
            name,
            declare_pointer("y", 0, kind),
            *(declare_pointer(f"x{c.slot}", 1 + c.slot, kind) for c in self.copies),
            *walk.loop(vector, walk.unroll(vector), loads, ["const auto r = a[u];"]),
        )

    def _item(self, walk: BoxWalk, vector: int) -> list[str]:
        """Statements that find the row of the input that has the item, and read it."""
        rows = [f"x{c.slot} + ({walk.offset(c.source.strides, 'p[u].i', c.source.shift)})" for c in self.copies]
        tests = [f"c < {c.end} ? " for c in self.copies[:-1]] + [""]
        narrowest = min(walk.sources, key=lambda source: walk.wide(source, vector))
        return [
            f"{{\nconst int c = {walk.index(self.op.axis, 'p[u]')};",
            f"const auto row = {' : '.join(t + row for t, row in zip(tests, rows))};",
            f"a[u] = {walk.read_row(narrowest, vector, 'row', 'p[u].k', 'w.begin', 'w.end')};\n}}",
        ]


class ViewKernel(Kernel):
    """A View that merges dimensions which are not contiguous in memory: indices are computed per element."""

    headers = (box_walk.HEADER,)

    def emit(self, name: str) -> str:
        """A walk of single elements; segments without constant strides are indexed by division."""
        x, strides = self.ins[0], view_strides(self.ins[0], self.out.shape)
        apart = frozenset(d for d, s in enumerate(strides) if s is None)
        source = moved(x, [s or 0 for s in strides])
        walk = BoxWalk(self.out, (source,), apart)
        parts = [
            self._index(walk, before, after)
            for before, after in segments(x.shape, self.out.shape)
            if any(strides[d] is None for d in range(*after.indices(self.out.rank)))
        ]
        along = [f"p[u].k * {offset_literal(source.strides[walk.dims[-1]])}"] if walk.dims else []
        where = " + ".join([walk.offset(source.strides, "p[u].i"), *along, *parts])
        load = f"if (p[u].k < w.end) a[u].v[0] = x[{where}];"
        return device_function(
            name,
            declare_pointer("y", 0, source.type),
            declare_pointer("x", 1, source.type),
            *walk.loop(1, walk.unroll(1), [(f"brick::Vector<{source.type}, 1> a[u]", load)], ["const auto r = a[u];"]),
        )

    def _index(self, walk: BoxWalk, before: slice, after: slice) -> str:
        """The input's offset that the output's indices within one segment amount to."""
        x, dims = self.ins[0], range(*after.indices(self.out.rank))
        flat = " + ".join(f"{walk.index(d, 'p[u]')} * {math.prod(self.out.shape[d + 1 : after.stop])}" for d in dims)
        inside = {axis: math.prod(x.shape[axis + 1 : before.stop]) for axis in range(*before.indices(x.rank))}
        return " + ".join(
            f"({flat}) / {n} % {x.shape[axis]} * {offset_literal(x.strides[axis])}" for axis, n in inside.items()
        )


def moved(x: Operand, strides: Sequence[int], shift: int = 0) -> WalkedOperand:
    """An input whose elements are moved only: `strides` are along the output's dimensions."""
    return WalkedOperand(bits_ctype(x.dtype), x.dtype.itemsize, tuple(strides), x.align, shift)


def view_strides(x: Operand, shape: Shape) -> list[int | None]:
    """Per dimension of the view, the input's elements from one index to the next; None where that is not constant."""
    strides: list[int | None] = [0] * len(shape)
    for before, after in segments(x.shape, shape):
        step = _step(x, before)
        for d in reversed(range(*after.indices(len(shape)))):
            strides[d] = None if step is None else step * math.prod(shape[d + 1 : after.stop])
    return strides


def _step(x: Operand, part: slice) -> int | None:
    """Elements between neighbours of a run of dimensions in row-major order; None where that is not constant."""
    long = [d for d in range(*part.indices(x.rank)) if x.shape[d] > 1]
    near = all(x.strides[a] == x.strides[b] * x.shape[b] for a, b in pairwise(long))
    return (x.strides[long[-1]] if long else 0) if near else None


@kernel_for(View)
def choose_view(op: Op, ins: Sequence[Operand], out: Operand) -> type[Kernel]:
    """A strided copy where the input has constant strides along the view's dimensions."""
    constant = out.type.size == 0 or None not in view_strides(ins[0], out.shape)
    return CopyKernel if constant else ViewKernel
