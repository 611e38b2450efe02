"""Interpolation: weighted sums along axes, whose indices and weights are tables in memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from brickrt.ops.cuda.kernel import Kernel, computes
from brickrt.ops.cuda.printing import box_walk, expressions
from brickrt.ops.cuda.printing.box_walk import BoxWalk, offset_literal, source_of
from brickrt.ops.cuda.printing.expressions import convert
from brickrt.ops.cuda.printing.functions import declare_pointer, device_function
from brickrt.ops.cuda.printing.types import ctype
from brickrt.ops.operators.sampling.interp import AxisTaps, Interp
from brickrt.ops.types import is_floating

UNROLLED = 4  # taps of an axis


@computes(Interp)
class InterpKernel(Kernel):
    """Sums in float where that is exact enough, else in double; vectors run along an axis without taps."""

    op: Interp
    headers = (expressions.HEADER, box_walk.HEADER)

    @cached_property
    def taps(self) -> dict[int, AxisTaps]:
        """The taps by axis, of axes that have any."""
        return {axis: t for axis, t in enumerate(self.op.taps) if t is not None}

    @property
    def sum_type(self) -> np.dtype:
        """The type of the sums: whole numbers need double, since truncation would show an error of the last place."""
        single = is_floating(self.out.dtype) and self.out.dtype.itemsize < 8
        return np.dtype(np.float32 if single else np.float64)

    def tables(self) -> tuple[np.ndarray, ...]:
        """Per axis with taps its indices and its weights, [outputs, taps]."""
        pairs = [(t.index_array.astype(np.int32), t.weight_array.astype(self.sum_type)) for t in self.taps.values()]
        return tuple(np.ascontiguousarray(a) for pair in pairs for a in pair)

    @cached_property
    def walk(self) -> BoxWalk:
        """The walk over the box; axes with taps are not joined with others."""
        return BoxWalk(self.out, (source_of(self.ins[0], self.out),), frozenset(self.taps))

    @property
    def vector(self) -> int:
        """Elements per item: one where the innermost axis has taps."""
        return 1 if self.walk.inner in self.taps else self.walk.vector

    def emit(self, name: str) -> str:
        """A loop over items, in each of them a loop nest over the taps of all axes."""
        if self.out.type.size == 0:
            return device_function(name)
        kind, vector = ctype(self.out.dtype), self.vector
        first = 1 + len(self.ins)
        tables = [
            text
            for k, axis in enumerate(self.taps)
            for text in (
                declare_pointer(f"t{axis}", first + 2 * k, "int"),
                declare_pointer(f"g{axis}", first + 2 * k + 1, ctype(self.sum_type)),
            )
        ]
        loads = [(f"brick::Vector<{kind}, {vector}> a[u]", "\n".join(["if (p[u].k < w.end) {", *self._item(), "}"]))]
        return device_function(
            name,
            declare_pointer("y", 0, kind),
            declare_pointer("x", 1, kind),
            *tables,
            *self.walk.loop(vector, 1, loads, ["const auto r = a[u];"]),
        )

    def _item(self) -> list[str]:
        """Statements that compute an item; sums over the last axis are outermost, as in the NumPy definition."""
        work, axes = ctype(self.sum_type), list(self.taps)
        lines = [f"const int i{axis} = {self.walk.index(axis, 'p[u]')};" for axis in axes]
        lines += [f"{work} s{n}[{self.vector}];" for n in range(len(axes) + 1)]
        lines += self._sums(axes, len(axes))
        value = convert(f"s{len(axes)}[v]", self.sum_type, self.out.dtype)
        return [*lines, *self._each(f"a[u].v[v] = ({ctype(self.out.dtype)})({value});")]

    def _sums(self, axes: Sequence[int], n: int) -> list[str]:
        """Statements that leave the sum over the first `n` of the axes with taps in s{n}."""
        if n == 0:
            return [
                "{",
                f"const auto b = {self._read(axes)};",
                *self._each(f"s0[v] = ({ctype(self.sum_type)})b.v[v];"),
                "}",
            ]
        axis, count = axes[n - 1], self.taps[axes[n - 1]].index_array.shape[1]
        at = f"i{axis} * {count} + k{axis}"
        return [
            *self._each(f"s{n}[v] = 0;"),
            "#pragma unroll" if count <= UNROLLED else "#pragma unroll 1",
            f"for (int k{axis} = 0; k{axis} < {count}; ++k{axis}) {{",
            f"const int j{axis} = t{axis}[{at}];",
            f"const {ctype(self.sum_type)} w{axis} = g{axis}[{at}];",
            *self._sums(axes, n - 1),
            *self._each(f"s{n}[v] += w{axis} * s{n - 1}[v];"),
            "}",
        ]

    def _each(self, statement: str) -> list[str]:
        return ["#pragma unroll", f"for (int v = 0; v < {self.vector}; ++v) {statement}"]

    def _read(self, axes: Sequence[int]) -> str:
        (source,) = self.walk.sources
        strides = self.ins[0].strides
        taps = [f"j{axis} * {offset_literal(strides[axis])}" for axis in axes]
        row = " + ".join(["x", self.walk.offset(source.strides, "p[u].i", skip=axes), *taps])
        if self.walk.inner in self.taps:
            return f"brick::Vector<{source.type}, 1>{{*({row})}}"
        if self.walk.stride(source) == 0:
            return f"brick::read_same<{self.vector}>({row}, p[u].k, w.end)"
        return self.walk.read_row(source, self.vector, row, "p[u].k", "w.begin", "w.end")
