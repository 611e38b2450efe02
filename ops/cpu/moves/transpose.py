"""Transpose, Reorder (plain to blocked and back) and View: other places for the same elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.moves.move_kernel import MoveKernel
from brickrt.ops.cpu.moves.spans import (
    CopyLoop,
    lane_spans,
    logical_ranges,
    stored_ranges,
    stored_shape,
    whole_blocks,
)
from brickrt.ops.cpu.moves.square_tiles import copy_spans
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.operand import row_major
from brickrt.ops.operators.move import Reorder, Transpose, View


class TransposeKernel(MoveKernel):
    """Plain to plain, or blocked to blocked where axis 1 stays."""

    def emit(self, f: FunctionEmitter) -> None:
        """A copy with the input's strides permuted."""
        strides = [self.ins[0].strides[axis] for axis in self.perm]
        ranges = stored_ranges(f, self.out, self.shape_class)
        axes = zip(ranges, strides, self.out.strides, stored_shape(self.out), strict=True)
        spans = [CopyLoop(*bounds, s, d, size) for bounds, s, d, size in axes]
        copy_spans(self.mover(f), spans + lane_spans(self.out.block), *self.memories(f))

    @property
    def perm(self) -> Sequence[int]:
        """Axes of the input in the output's order."""
        return self.op.perm if isinstance(self.op, Transpose) else range(self.out.type.rank)


class ReorderKernel(MoveKernel):
    """Between plain and blocked. The blocked side's whole blocks and its last, narrower one have their own code."""

    def emit(self, f: FunctionEmitter) -> None:
        """Whole blocks, then the last one's channels."""
        c = self.out.shape[1]
        block = self.blocked.block
        lo, hi = logical_ranges(f, self.out, self.shape_class)[1]
        if self.out.block == 1 and not (lo == 0 and hi == c):
            self._emit_any(f, lo, hi)
            return
        full, tail = divmod(c, block)
        first, last = whole_blocks(f, lo, hi, block)
        if full:
            self._emit_blocks(f, CopyLoop(first, f.minimum(last, full), 0, 0, full), CopyLoop(0, block, 0, 0, block))
        if tail:
            self._emit_blocks(f, CopyLoop(f.maximum(first, full), last, 0, 0, 1), CopyLoop(0, tail, 0, 0, tail))

    def _emit_any(self, f: FunctionEmitter, lo: Index, hi: Index) -> None:
        """To plain, channels cut anywhere."""
        block = self.blocked.block
        with f.loop(f.div(lo, block), whole_blocks(f, lo, hi, block)[1]) as k:
            base = f.mul(k, block)
            lanes = f.maximum(f.sub(lo, base), 0), f.minimum(f.sub(hi, base), block)
            self._emit_blocks(f, CopyLoop(k, f.add(k, 1), 0, 0, 1), CopyLoop(*lanes, 0, 0, block))

    def _emit_blocks(self, f: FunctionEmitter, blocks: CopyLoop, lanes: CopyLoop) -> None:
        """Copies `lanes` of each of `blocks`; their strides are filled in here."""
        ranges = logical_ranges(f, self.out, self.shape_class)
        axes = zip(ranges, self.ins[0].strides, self.out.strides, self.out.shape, strict=True)
        spans = [CopyLoop(*bounds, s, d, size) for bounds, s, d, size in axes]
        src, src_lane, src_room = channel_strides(self.ins[0], self.blocked.block)
        dst, dst_lane, dst_room = channel_strides(self.out, self.blocked.block)
        spans[1] = replace(blocks, src=src, dst=dst)
        spans.append(replace(lanes, src=src_lane, dst=dst_lane, src_room=src_room, dst_room=dst_room))
        copy_spans(self.mover(f), spans, *self.memories(f))

    @property
    def blocked(self) -> Operand:
        """The operand that is blocked."""
        return self.out if self.out.block > 1 else self.ins[0]


def channel_strides(operand: Operand, block: int) -> tuple[int, int, int]:
    """From one block of `block` channels to the next, from one channel of a block to the next, and a block's room."""
    stride = operand.strides[1]
    return (stride, 1, block) if operand.block > 1 else (stride * block, stride, 0)


class ViewKernel(MoveKernel):
    """Plain to plain. Of a dense input every box is copied by rows; of any other, element by element."""

    def opened_op(self, take: Callable[[int], Any]) -> tuple[Op, tuple[Any, ...]]:
        """The shape is the output's."""
        return View(()), ()

    def emit(self, f: FunctionEmitter) -> None:
        """A copy of flat memory where the input is dense."""
        src = self.ins[0]
        flat = row_major(self.out.shape)
        axes = zip(logical_ranges(f, self.out, self.shape_class), flat, self.out.strides, self.out.shape, strict=True)
        spans = [CopyLoop(*bounds, s, d, size) for bounds, s, d, size in axes]
        mover, (here, there) = self.mover(f), self.memories(f)
        if is_dense(src):
            copy_spans(mover, spans, here, there)
            return
        with f.loops([(s.lo, s.hi) for s in spans]) as at:
            inner = [
                f.rem(f.div(f.dot(at, flat), step), extent) for step, extent in zip(row_major(src.shape), src.shape)
            ]
            mover.one(here.moved(f, f.dot(inner, src.strides)), there.moved(f, f.dot(at, self.out.strides)))


def is_dense(operand: Operand) -> bool:
    """Row-major without gaps; the strides of axes of extent 1 do not count."""
    wanted = row_major(operand.shape)
    return all(e == 1 or s == w for e, s, w in zip(operand.shape, operand.strides, wanted, strict=True))


@kernel_for(Transpose)
def choose_transpose(op: Transpose, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """Raises LookupError where blocked operands do not keep axis 1."""
    if ins[0].block != out.block or (out.block > 1 and op.perm[1] != 1):
        raise LookupError("Transpose: blocked operands need axis 1 to stay; reorder to plain first")
    return TransposeKernel


@kernel_for(Reorder)
def choose_reorder(op: Reorder, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """Raises LookupError between blocks of different sizes."""
    if ins[0].block == out.block:
        return TransposeKernel
    if 1 not in (ins[0].block, out.block):
        raise LookupError(f"Reorder: from blocks of {ins[0].block} to blocks of {out.block}; go through plain")
    return ReorderKernel


@kernel_for(View)
def choose_view(op: View, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """Raises LookupError for blocked operands."""
    if ins[0].block > 1 or out.block > 1:
        raise LookupError("View: operands must be plain; reorder first")
    return ViewKernel
