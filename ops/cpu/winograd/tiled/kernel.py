"""Winograd kernels whose products tile registers add, and their maker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from brickrt.ops.cpu.amx.tile_registers import TileRegisters
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.winograd.axes import Axes
from brickrt.ops.cpu.winograd.frame import WinogradFrame
from brickrt.ops.cpu.winograd.kernel import WinogradKernel, WinogradMaker
from brickrt.ops.cpu.winograd.products import Products
from brickrt.ops.cpu.winograd.sizes import TILED
from brickrt.ops.cpu.winograd.tiled.products import TiledProducts
from brickrt.ops.cpu.winograd.tiled.scheme import TiledScheme


class TiledWinogradKernel(TiledScheme, WinogradKernel):
    """A convolution without strides, of a blocked input."""

    def emit(self, f: FunctionEmitter) -> None:
        """As ever, between shaping the tile registers and giving them back."""
        registers = TileRegisters(f)
        registers.configure()
        super().emit(f)
        registers.release()

    def products(self, frame: WinogradFrame) -> Products:
        """See `WinogradKernel`."""
        return TiledProducts(frame, self)


@dataclass(frozen=True)
class TiledWinogradMaker(WinogradMaker):
    """Makes Winograd kernels whose products tile registers add."""

    made: ClassVar[type[WinogradKernel]] = TiledWinogradKernel

    def transformed(self, axes: Axes, x: Operand, out: Operand, isa: Isa) -> int:
        """See `WinogradMaker`."""
        return TILED
