"""Pointers and the walk over tiles as all Winograd kernels have them, for integers."""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I16, I32, Index, vector
from brickrt.ops.cpu.products.words.words import WORD
from brickrt.ops.cpu.winograd.frame import WinogradFrame
from brickrt.ops.cpu.winograd.integers.scheme import IntegerScheme


class IntegerFrame(WinogradFrame):
    """Has words in V and M; `halves` is the type of a vector of them as 16-bit integers."""

    def __init__(self, kernel: IntegerScheme, f: FunctionEmitter) -> None:
        super().__init__(kernel, f)
        self.dtype, self.kind = WORD, vector(I32, kernel.lanes)
        self.halves = vector(I16, kernel.step_channels * kernel.lanes)

    def raw_at(self, block: Index, channel: Index, tap: Index) -> Index:
        """See `WinogradFrame`: where the words of a pair of channels lie, in bytes."""
        return self.f.mul(super().raw_at(block, channel, tap), self.k.step_channels)

    def flag(self) -> ir.Value:
        """See `WinogradFrame`: a plan asks for these kernels where all weights may be transformed."""
        return I32(0)
