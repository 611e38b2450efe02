"""The first step of reductions over images: each thread combines segments of a row, of neighbouring channels."""

from __future__ import annotations

from functools import cached_property

from brickrt.ops.cuda.kernel import Kernel, computes
from brickrt.ops.cuda.printing import box_walk
from brickrt.ops.cuda.printing.box_walk import BoxWalk, WalkedOperand, offset_literal
from brickrt.ops.cuda.printing.functions import declare_pointer, device_function
from brickrt.ops.cuda.printing.types import compute_ctype, ctype
from brickrt.ops.cuda.reductions.row_traits import COMBINE
from brickrt.ops.operators.partial_reduce import PartialReduce


@computes(PartialReduce)
class PartialReduceKernel(Kernel):
    """Vectors run along the output's innermost dimension, unless that is the one that is cut in segments."""

    op: PartialReduce
    headers = (box_walk.HEADER, "combine.cuh")

    @cached_property
    def walk(self) -> BoxWalk:
        """The walk over the output together with the first element of each segment."""
        x, last = self.ins[0], self.out.rank - 1
        strides = (*x.strides[:-1], x.strides[-1] * self.op.length)
        source = WalkedOperand(ctype(x.dtype), x.dtype.itemsize, strides, x.align)
        return BoxWalk(self.out, (source,), frozenset([last]))

    def emit(self, name: str) -> str:
        """A walk over segments."""
        if self.out.type.size == 0:
            return device_function(name)
        walk, kind = self.walk, compute_ctype(self.out.dtype)
        vector = 1 if walk.inner == self.out.rank - 1 else walk.vector
        result = [
            f"brick::Vector<{ctype(self.out.dtype)}, {vector}> r;",
            "#pragma unroll",
            f"for (int v = 0; v < {vector}; ++v) r.v[v] = ({ctype(self.out.dtype)})a[u].v[v];",
        ]
        loads = [(f"brick::Vector<{kind}, {vector}> a[u]", "\n".join(self._segment(vector)))]
        return device_function(
            name,
            declare_pointer("y", 0, ctype(self.out.dtype)),
            declare_pointer("x", 1, ctype(self.ins[0].dtype)),
            *walk.loop(vector, 1, loads, result),
        )

    def _segment(self, vector: int) -> list[str]:
        """Statements that combine the elements of a segment, one after the other."""
        x, walk, last = self.ins[0], self.walk, self.out.rank - 1
        combine = f"brick::{COMBINE[self.op.combine]}<{compute_ctype(self.out.dtype)}>"
        (source,) = walk.sources
        row = f"x + ({walk.offset(source.strides, 'p[u].i')}) + t * {offset_literal(x.strides[-1])}"
        left = f"{x.shape[-1]} - {walk.index(last, 'p[u]')} * {self.op.length}"
        return [
            "#pragma unroll",
            f"for (int v = 0; v < {vector}; ++v) a[u].v[v] = {combine}::start();",
            f"const int left = p[u].k < w.end ? {left} : 0;",
            f"for (int t = 0; t < {self.op.length} && t < left; ++t) {{",
            f"const auto one = {walk.read_row(source, vector, row, 'p[u].k', 'w.begin', 'w.end')};",
            "#pragma unroll",
            f"for (int v = 0; v < {vector}; ++v) a[u].v[v] = {combine}::of(a[u].v[v], "
            f"({compute_ctype(self.out.dtype)})one.v[v]);",
            "}",
        ]
