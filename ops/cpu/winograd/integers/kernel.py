"""Winograd kernels of integers, and their maker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.winograd.axes import Axes
from brickrt.ops.cpu.winograd.frame import WinogradFrame
from brickrt.ops.cpu.winograd.integers.frame import IntegerFrame
from brickrt.ops.cpu.winograd.integers.input import IntegerInput
from brickrt.ops.cpu.winograd.integers.output import IntegerOutput
from brickrt.ops.cpu.winograd.integers.products import IntegerProducts
from brickrt.ops.cpu.winograd.integers.scheme import IntegerScheme
from brickrt.ops.cpu.winograd.kernel import Phases, WinogradKernel, WinogradMaker
from brickrt.ops.cpu.winograd.sizes import INTEGERS
from brickrt.ops.cpu.winograd.tile_ranges import Suspects


class IntegerWinogradKernel(IntegerScheme, WinogradKernel):
    """An exact convolution by minimal filtering."""

    def phases(self, f: FunctionEmitter) -> tuple[WinogradFrame, Phases, Suspects | None]:
        """See `WinogradKernel`: a plan asks for these kernels where all weights may be transformed."""
        frame = IntegerFrame(self, f)
        return frame, (IntegerInput(frame), IntegerProducts(frame), IntegerOutput(frame)), None


@dataclass(frozen=True)
class IntegerWinogradMaker(WinogradMaker):
    """Makes Winograd kernels of integers."""

    made: ClassVar[type[WinogradKernel]] = IntegerWinogradKernel

    def transformed(self, axes: Axes, x: Operand, out: Operand, isa: Isa) -> int:
        """See `WinogradMaker`."""
        return INTEGERS
