"""Elementwise chains: vectors along the output's innermost dimension, several of them in flight in each thread."""

from __future__ import annotations

from functools import cached_property

from brickrt.ops.cuda.kernel import Kernel, computes
from brickrt.ops.cuda.printing import box_walk, expressions
from brickrt.ops.cuda.printing.box_walk import BoxWalk, source_of
from brickrt.ops.cuda.printing.expressions import effort, print_expr
from brickrt.ops.cuda.printing.functions import declare_pointer, device_function
from brickrt.ops.cuda.printing.types import compute_ctype, ctype
from brickrt.ops.expr import used_operands
from brickrt.ops.operators.map import Map

LIGHT_EFFORT = 64  # beyond it one item at a time keeps the units busy


@computes(Map)
class MapKernel(Kernel):
    """Loads the operands that the expression uses, computes it element by element, and stores vectors."""

    op: Map
    headers = (expressions.HEADER, box_walk.HEADER)

    @cached_property
    def walk(self) -> BoxWalk:
        """The walk over the box together with the operands that the expression uses."""
        return BoxWalk(self.out, tuple(source_of(self.ins[k], self.out) for k in used_operands(self.op.expr)))

    def emit(self, name: str) -> str:
        """A loop over items; unless the expression is costly, several are loaded before the first is computed."""
        if self.out.type.size == 0:
            return device_function(name)
        kind, vector = ctype(self.out.dtype), self.walk.vector
        operands = list(zip(used_operands(self.op.expr), self.walk.sources))
        loads = [
            (f"brick::Vector<{s.type}, {vector}> a{k}[u]", f"a{k}[u] = {self.walk.read(s, vector, f'x{k}', 'p[u]')};")
            for k, s in operands
        ]
        unroll = 1 if effort(self.op.expr) > LIGHT_EFFORT else self.walk.unroll(vector)
        return device_function(
            name,
            declare_pointer("y", 0, kind),
            *(declare_pointer(f"x{k}", 1 + k, s.type) for k, s in operands),
            *self.walk.loop(vector, unroll, loads, self._result(vector)),
        )

    def _result(self, vector: int) -> list[str]:
        kinds = {k: compute_ctype(self.ins[k].dtype) for k in used_operands(self.op.expr)}
        statements, value = print_expr(self.op.expr, [f"b{k}" for k in range(len(self.ins))])
        return [
            f"brick::Vector<{ctype(self.out.dtype)}, {vector}> r;",
            "#pragma unroll",
            f"for (int v = 0; v < {vector}; ++v) {{",
            *(f"const {kind} b{k} = a{k}[u].v[v];" for k, kind in kinds.items()),
            statements,
            f"r.v[v] = ({ctype(self.out.dtype)})({value});",
            "}",
        ]
