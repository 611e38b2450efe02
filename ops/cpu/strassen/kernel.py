"""Kernels of Strassen's scheme: what `scheme.py` and `two_level_scheme.py` describe, with the code that computes it."""

from __future__ import annotations

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.strassen.body import StrassenBody
from brickrt.ops.cpu.strassen.scheme import StrassenScheme
from brickrt.ops.cpu.strassen.two_level_body import TwoLevelStrassenBody
from brickrt.ops.cpu.strassen.two_level_scheme import TwoLevelStrassenScheme


class StrassenKernel(StrassenScheme):
    """A matrix product with seven eighths of the multiplications."""

    def emit(self, f: FunctionEmitter) -> None:
        """See `StrassenBody`."""
        StrassenBody(self, f).emit()


class TwoLevelStrassenKernel(TwoLevelStrassenScheme):
    """A matrix product with 49 of 64 multiplications."""

    def emit(self, f: FunctionEmitter) -> None:
        """See `TwoLevelStrassenBody`."""
        TwoLevelStrassenBody(self, f).emit()
