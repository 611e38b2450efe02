"""The input transform of integers: two blocks of channels at a time, as 16-bit integers."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import Index, zeros
from brickrt.ops.cpu.winograd.frame import WinogradTile
from brickrt.ops.cpu.winograd.input_transform import TILES_AHEAD, InputTransform
from brickrt.ops.cpu.winograd.integers.frame import IntegerFrame
from brickrt.ops.cpu.winograd.integers.transforms import input_rows


class IntegerInput(InputTransform):
    """Emits the input transform of bytes."""

    frame: IntegerFrame
    rows = staticmethod(input_rows)

    def plane(self, base: Index, corner: Sequence[Index], guarded: bool, tile: WinogradTile, z: Index) -> None:
        """One tile in plane `z` of the input, which begins at `base`; `guarded` where not all of it may be read. Of an
        odd number of blocks the last one is read twice, and its copy multiplied by nothing."""
        f, k = self.f, self.k
        with f.loop(0, k.depth_in) as c:
            first = f.mul(c, k.step_channels)
            blocks = [f.minimum(f.add(first, n), k.blocks_in - 1) for n in range(k.step_channels)]
            starts = [f.add(base, f.mul(block, k.ins[0].strides[1])) for block in blocks]
            self.store(self.words(starts, corner, guarded), tile, z, c)

    def words(self, starts: Sequence[Index], corner: Sequence[Index], guarded: bool) -> list[list[ir.Value]]:
        """The n×n vectors of a tile of the blocks of channels that begin at `starts`."""
        parts = [self.read(start, corner, guarded) for start in starts]
        return [[self.joined(pair) for pair in zip(*rows, strict=True)] for rows in zip(*parts, strict=True)]

    def joined(self, parts: Sequence[ir.Value]) -> ir.Value:
        """The bytes of two blocks as 16-bit integers."""
        first, second = parts
        return self.f.b.zext(self.f.shuffle(first, second, range(2 * self.k.lanes)), self.frame.halves)

    def direct(self, base: Index, corner: Sequence[Index]) -> list[list[ir.Value]]:
        """See `InputTransform`: a later tile's pixels of a row lie in one line, or two."""
        f, k, (down, across), dtype = self.f, self.k, self.axes, self.frame.input_type
        start = f.address(self.frame.x, f.add(base, f.dot(corner, self.strides)), dtype)
        sy, sx = (stride * axis.step for stride, axis in zip(self.strides, self.axes, strict=True))
        rows = [f.address(start, r * sy, dtype) for r in range(down.n)]
        for row in rows:
            f.prefetch(row, across.after(TILES_AHEAD) * self.strides[1] + (across.n - 1) * sx, dtype, near=False)
        return [[f.load(row, c * sx, dtype, k.lanes) for c in range(across.n)] for row in rows]

    def unread(self) -> ir.Value:
        """See `InputTransform`: bytes."""
        return zeros(ir.VectorType(ir.IntType(8), self.k.lanes))
