"""Row-wise operators (norms, softmax): reductions over the same rows, and a Map of what they give."""

from __future__ import annotations

from functools import cached_property

from brickrt.ops.cuda.kernel import computes
from brickrt.ops.cuda.operand import Operand
from brickrt.ops.cuda.reductions.reduce import RowsKernel
from brickrt.ops.cuda.reductions.row_traits import RowTraits, held_words
from brickrt.ops.cuda.reductions.rows import RowLayout, Sharing, choose_sharing, rows_of
from brickrt.ops.expr import Expr, substitute, used_operands
from brickrt.ops.operators.rowwise import Rowwise, Step


@computes(Rowwise)
class RowwiseKernel(RowsKernel):
    """What the operator keeps is computed again: here that is cheaper than to store and load it."""

    op: Rowwise

    @cached_property
    def traits(self) -> RowTraits:
        """Rows along the reduced axes; inputs that several sweeps read are held."""
        op, box = self.op, list(self.largest or self.out.shape)
        rows = rows_of(self.out.shape, op.axes, self.ins, self.out.broadcast_strides(self.out.rank), box)
        steps, expr = without_kept(op, len(self.ins))
        held = _held(rows, self.ins, [expr, *(s.pre for s in steps)])
        how = Sharing(1) if rows.across else choose_sharing(rows, held_words(self.ins, held), box)
        return RowTraits(rows, how, self.ins, self.out, steps, expr, held, list(rows.kept))


def _held(rows: RowLayout, ins: tuple[Operand, ...], exprs: list[Expr]) -> list[int]:
    """Inputs with elements of their own in every row, which more than one sweep reads."""
    reads = [k for e in exprs for k in used_operands(e)]
    own = [k for k in range(len(ins)) if reads.count(k) > 1 and all(rows.strides[k][d] for d in rows.kept)]
    return [k for k in own if any(run.strides[k] for run in rows.runs)]


def without_kept(op: Rowwise, inputs: int) -> tuple[list[Step], Expr]:
    """Steps and expression in which the kept value is replaced by what it is computed from."""
    if op.kept is None:
        return list(op.steps), op.expr
    place = {inputs + len(op.steps): op.kept}
    *first, last = op.steps
    return [*first, Step(last.combine, substitute(last.pre, place), last.post)], substitute(op.expr, place)
