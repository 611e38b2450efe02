"""The code of a Winograd convolution: per group of tiles, input transform, products, output transform."""

from __future__ import annotations

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.winograd.frame import TileGroup, WinogradFrame
from brickrt.ops.cpu.winograd.gather import GatheredInput
from brickrt.ops.cpu.winograd.input_transform import InputTransform
from brickrt.ops.cpu.winograd.output_transform import OutputTransform
from brickrt.ops.cpu.winograd.products import Products
from brickrt.ops.cpu.winograd.scheme import WinogradScheme


class WinogradBody:
    """Emits a Winograd convolution."""

    def __init__(self, kernel: WinogradScheme, f: FunctionEmitter) -> None:
        self.k, self.f, self.frame = kernel, f, WinogradFrame(kernel, f)
        read = GatheredInput(self.frame) if kernel.gathers else InputTransform(self.frame)
        self.phases = (read, Products(self.frame), OutputTransform(self.frame))

    def emit(self) -> None:
        """Groups of tiles, then runs of planes; all phases of one before the next."""
        f, k, frame = self.f, self.k, self.frame
        swept = frame.swept
        with f.loop(0, frame.total, k.group) as first, f.loop(swept.lo, swept.hi, k.run) as z:
            count = f.minimum(k.group, f.sub(frame.total, first))
            blocks = f.div(f.add(count, k.t - 1), k.t)
            group = TileGroup(first, count, blocks, z, f.minimum(f.add(z, k.run), swept.hi))
            for phase in self.phases:
                phase.emit(group)
