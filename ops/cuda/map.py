"""Elementwise chains: vectors along the output's innermost dimension, several of them under way in each thread."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from brickrt.ops.base import Op
from brickrt.ops.cuda import expr_cuda, walk
from brickrt.ops.cuda.expr_cuda import effort, print_expr, used_operands
from brickrt.ops.cuda.kernel import Kernel, kernel_for
from brickrt.ops.cuda.operand import Operand
from brickrt.ops.cuda.types_cuda import compute_ctype, ctype
from brickrt.ops.cuda.walk import Walk, function, pointer, source_of
from brickrt.ops.map import Map

BYTES_UNDER_WAY = 32  # per thread and operand, at most: enough that few resident blocks keep the memory busy
LIGHT = 64  # effort beyond which one item at a time keeps the units busy


class MapKernel(Kernel):
    op: Map
    headers = (expr_cuda.HEADER, walk.HEADER)

    @cached_property
    def walk(self) -> Walk:
        return Walk(self.out, tuple(source_of(self.ins[k], self.out) for k in used_operands(self.op.expr)))

    def emit(self, name: str) -> str:
        if self.out.type.size == 0:
            return function(name)
        operands, vector = used_operands(self.op.expr), self.walk.vector
        unroll = items_under_way(vector, self.walk, effort(self.op.expr))
        reads = [
            f"a{k}[u] = {self.walk.read(s, vector, f'x{k}', 'p[u]')};" for k, s in zip(operands, self.walk.sources)
        ]
        return function(
            name,
            pointer("y", 0, ctype(self.out.dtype)),
            *(pointer(f"x{k}", 1 + k, s.type) for k, s in zip(operands, self.walk.sources)),
            f"{self.walk.items(vector)} w(s);",
            "while (w.more()) {",
            f"{self.walk.items(vector)}::Place p[{unroll}];",
            *(f"brick::Vector<{s.type}, {vector}> a{k}[{unroll}];" for k, s in zip(operands, self.walk.sources)),
            "#pragma unroll",
            f"for (int u = 0; u < {unroll}; ++u) {{",
            "p[u] = w.take();",
            *reads,
            "}",
            "#pragma unroll",
            f"for (int u = 0; u < {unroll}; ++u) {{",
            f"brick::Vector<{ctype(self.out.dtype)}, {vector}> r;",
            "#pragma unroll",
            f"for (int v = 0; v < {vector}; ++v) {{",
            *self._element(operands),
            "}",
            self.walk.write(vector, "y", "r", "p[u]"),
            "}",
            "}",
        )

    def _element(self, operands: Sequence[int]) -> list[str]:
        """Element v of item u."""
        names = [f"b{k}" for k in range(len(self.ins))]
        statements, value = print_expr(self.op.expr, names)
        kinds = {k: compute_ctype(self.ins[k].dtype) for k in operands}
        loads = [f"const {kinds[k]} b{k} = a{k}[u].v[v];" for k in operands]
        return [*loads, statements, f"r.v[v] = ({ctype(self.out.dtype)})({value});"]


def items_under_way(vector: int, walk: Walk, cost: int) -> int:
    """Items of a thread whose loads are issued before the first result is stored."""
    widest = max([walk.out.dtype.itemsize, *(s.itemsize for s in walk.sources)]) * vector
    most = 1 if cost > LIGHT else 2 if len(walk.sources) > 2 else 4
    return max(1, min(most, BYTES_UNDER_WAY // widest))


@kernel_for(Map)
def choose_map(op: Op, ins: Sequence[Operand], out: Operand) -> type[Kernel]:
    return MapKernel
