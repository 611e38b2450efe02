"""Products whose second factor is brought into tiles while the kernel runs: of two computed matrices, as in attention,
and by weights of float16, which take no more room in memory than they did.

What a tile of output channels needs of a part of K is made in the workspace, as `AmxScheme` lays out weights, before
the pixels of a chunk are swept. A chunk has hundreds of pixels where there are as many.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from brickrt.ops.cpu.amx.body import AmxBody
from brickrt.ops.cpu.amx.gather import BYTE, Chunk
from brickrt.ops.cpu.amx.scheme import CHANNEL_TILES, AmxScheme
from brickrt.ops.cpu.amx.second_factors import second_factor
from brickrt.ops.cpu.amx.sizes import ROW_BYTES, ROWS, TILE_BYTES
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.products.matrices.scheme import MOST_FEATURES

BROUGHT_BYTES = 3 << 17  # of the workspace for tiles of second factors: with what a chunk reads they fit L2


class BroughtKernel(AmxScheme):
    """A product of computed matrices, or with weights of float16."""

    def open_dims(self, i: int | None) -> Sequence[int]:
        """See `Kernel`. As those of `MatMulKernel`, features are known and numbers of tokens are not."""
        if self.packed[1]:
            return super().open_dims(i)
        shape, rows = (self.out if i is None else self.ins[i]).shape, self.out.shape[-2]
        return [d for d, n in enumerate(shape) if n > MOST_FEATURES or n % self.lanes or n == rows]

    @property
    def most_units(self) -> int:
        """Units of K that there is room for."""
        return min(super().most_units, max(1, BROUGHT_BYTES // (self.taps * CHANNEL_TILES * self.step_bytes)))

    @property
    def block_bytes(self) -> int:
        """Bytes of a block in the workspace."""
        return self.taps * self.sweep * self.step_bytes

    @property
    def brought_at(self) -> int:
        """Bytes of the workspace before a tile of output channels."""
        return super().area_at

    @property
    def area_at(self) -> int:
        """Bytes before the planes."""
        return self.brought_at + CHANNEL_TILES * self.block_bytes

    def packed_elements(self, i: int) -> int:
        """See `Kernel`."""
        if i == 1:
            return self.blocks * self.taps * self.units * TILE_BYTES // self.ins[1].dtype.itemsize
        return super().packed_elements(i)

    def emit(self, f: FunctionEmitter) -> None:
        """See `BroughtBody`."""
        BroughtBody(self, f).emit()


class BroughtBody(AmxBody):
    """Emits the product."""

    k: BroughtKernel

    def __init__(self, kernel: BroughtKernel, f: FunctionEmitter) -> None:
        super().__init__(kernel, f)
        second = second_factor(kernel, f)
        assert second is not None
        self.second = second
        self.brought = f.address(self.work, kernel.brought_at, BYTE)

    def stream(self, chunk: Chunk, tile: Index, blocks: int) -> ir.Value:
        """Makes the tiles of a part of K."""
        f, k = self.f, self.k
        past = f.mul(self.sweep, k.sweep)
        end = f.minimum(k.sweep, f.sub(k.units, past))
        whole = f.minimum(end, f.sub(self.second.whole_units, past))
        self.second.begin(chunk.batch, f.mul(tile, CHANNEL_TILES), blocks)
        for first, last, is_whole in ((0, whole, True), (f.maximum(0, whole), end, False)):
            with f.loop(0, k.taps) as tap, f.loop(first, last) as unit, f.loop(0, ROWS) as row:
                number = f.add(f.mul(tap, k.sweep), unit)
                to = f.address(self.brought, f.mul(number, blocks * k.step_bytes), BYTE)
                to = f.address(to, f.mul(row, ROW_BYTES), BYTE)
                for j in range(blocks):
                    parts = self.second.words(tap, f.add(past, unit), row, j, is_whole)
                    for part, value in enumerate(parts):
                        f.b.store(value, f.address(to, (part * blocks + j) * TILE_BYTES, BYTE), align=1)
        return self.brought

    def prefetch(self, weights: ir.Value, first: Index, blocks: int) -> None:
        """Nothing: what was made just now is near."""

    def first_unit(self, tap: Index) -> Index:
        """The number of a tap's first unit of K in the workspace."""
        return self.f.mul(tap, self.k.sweep)
