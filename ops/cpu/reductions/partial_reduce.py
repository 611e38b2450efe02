"""Segments of rows of blocked tensors: lanes are channels, and a segment has several sums that do not wait for one
another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from llvmlite import ir

from brickrt.ops.base import Op
from brickrt.ops.cpu.arithmetic.combine import Combine
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.operands.epilogue import offset_of
from brickrt.ops.operators.partial_reduce import PartialReduce

PARTIALS = 8  # accumulators: enough to hide the latency of the additions


@dataclass(frozen=True)
class PartialReduceKernel(Kernel):
    """Each output combines one segment of a row."""

    op: PartialReduce

    sized: ClassVar[bool] = True

    def emit(self, f: FunctionEmitter) -> None:
        """One vector of channels of a segment at a time."""
        lanes, (lo, hi) = self.isa.lanes, f.box(1)
        target, source = f.pointer(0), f.pointer(1)
        blocks = f.div(lo, lanes), f.div(f.add(hi, lanes - 1), lanes)
        inner = [f.box(d) for d in range(2, len(self.out.shape))]
        with f.loops([f.box(0), blocks, *inner]) as (n, block, *at):
            index = [n, f.mul(block, lanes), *at]
            value = self._segment(f, source, index)
            f.store(value, target, offset_of(f, self.out, index), self.out.dtype, lanes)

    def _segment(self, f: FunctionEmitter, source: ir.Value, index: Sequence[Index]) -> ir.Value:
        """The combined elements of the segment at `index` of the output."""
        combine, lanes = Combine(self.op.combine, self.out.dtype), self.isa.lanes
        x, last = self.ins[0], self.ins[0].shape[-1]
        start = f.mul(index[-1], self.op.length)
        count = f.minimum(f.sub(last, start), self.op.length)
        pixels = f.address(source, offset_of(f, x, [*index[:-1], start]), x.dtype)
        identity = combine.identity(lanes)
        sums = [f.local(identity.type, identity) for _ in range(PARTIALS)]

        def add(to: ir.Value, at: Index) -> None:
            value = f.load(pixels, f.mul(at, x.strides[-1]), x.dtype, lanes)
            f.set(to, combine.apply(f, f.get(to, identity.type), value))

        with f.loop(0, f.sub(count, PARTIALS - 1), PARTIALS) as i:
            for k, total in enumerate(sums):
                add(total, f.add(i, k))
        with f.loop(f.sub(count, f.rem(count, PARTIALS)), count) as i:
            add(sums[0], i)
        return combine.all(f, [f.get(total, identity.type) for total in sums])


@kernel_for(PartialReduce)
def choose(op: Op, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """Raises LookupError for plain tensors."""
    if ins[0].block != isa.lanes or out.block != isa.lanes:
        raise LookupError("Segments are of blocked tensors")
    return PartialReduceKernel
