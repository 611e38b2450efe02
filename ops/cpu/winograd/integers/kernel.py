"""Winograd kernels of integers, and their maker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.winograd.axes import Axes
from brickrt.ops.cpu.winograd.frame import TileGroup
from brickrt.ops.cpu.winograd.integers.frame import IntegerFrame
from brickrt.ops.cpu.winograd.integers.input import IntegerInput
from brickrt.ops.cpu.winograd.integers.output import IntegerOutput
from brickrt.ops.cpu.winograd.integers.products import IntegerProducts
from brickrt.ops.cpu.winograd.integers.scheme import IntegerScheme
from brickrt.ops.cpu.winograd.kernel import WinogradKernel, WinogradMaker
from brickrt.ops.cpu.winograd.sizes import INTEGERS


class IntegerWinogradKernel(IntegerScheme, WinogradKernel):
    """An exact convolution by minimal filtering."""

    def emit(self, f: FunctionEmitter) -> None:
        """Groups of tiles, then runs of planes; all phases of one before the next."""
        frame = IntegerFrame(self, f)
        phases = (IntegerInput(frame), IntegerProducts(frame), IntegerOutput(frame))
        with f.loop(0, frame.total, self.group) as first:
            count = f.minimum(self.group, f.sub(frame.total, first))
            blocks = f.div(f.add(count, self.t - 1), self.t)
            with f.loop(frame.swept.lo, frame.swept.hi, self.run) as z:
                end = f.minimum(f.add(z, self.run), frame.swept.hi)
                for phase in phases:
                    phase.emit(TileGroup(first, count, blocks, z, end))


@dataclass(frozen=True)
class IntegerWinogradMaker(WinogradMaker):
    """Makes Winograd kernels of integers."""

    made: ClassVar[type[WinogradKernel]] = IntegerWinogradKernel

    def transformed(self, axes: Axes, x: Operand, out: Operand) -> int:
        """See `WinogradMaker`."""
        return INTEGERS
