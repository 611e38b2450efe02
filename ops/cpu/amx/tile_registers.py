"""The eight tile registers: 16 rows of 64 bytes each. Four hold sums, two pixels, two weights."""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.amx.sizes import ROW_BYTES, ROWS
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I8, VOID, vector_constant

REGISTER_COUNT = 8
PALETTE = 1
CONFIGURATION = bytes(
    [PALETTE, *[0] * 15, *[ROW_BYTES, 0] * REGISTER_COUNT, *[0] * 16, *[ROWS] * REGISTER_COUNT, *[0] * 8]
)  # palette, bytes of a row of each register, rows of each


class TileRegisters:
    """Emits instructions on tile registers, which are named by their numbers."""

    def __init__(self, f: FunctionEmitter) -> None:
        self.f = f

    def configure(self) -> None:
        """Gives all registers their shape; before anything else."""
        kind = ir.VectorType(I8, len(CONFIGURATION))
        place = self.f.local(kind)
        self.f.b.store(vector_constant(I8, tuple(CONFIGURATION)), place)
        self.f.intrinsic("llvm.x86.ldtilecfg", VOID, place)

    def release(self) -> None:
        """Gives the registers back, so that the system need not keep what they hold."""
        self.f.intrinsic("llvm.x86.tilerelease", VOID)

    def zero(self, tile: int) -> None:
        """Clears a register."""
        self.f.intrinsic("llvm.x86.tilezero", VOID, I8(tile))

    def load(self, tile: int, address: ir.Value, stride: ir.Value) -> None:
        """Loads rows that lie `stride` bytes apart."""
        self.f.intrinsic("llvm.x86.tileloadd64", VOID, I8(tile), address, stride)

    def store(self, tile: int, address: ir.Value, stride: ir.Value) -> None:
        """Stores rows `stride` bytes apart."""
        self.f.intrinsic("llvm.x86.tilestored64", VOID, I8(tile), address, stride)

    def multiply(self, sums: int, pixels: int, weights: int, instruction: str) -> None:
        """Adds the products of pixels and weights, words at a time."""
        self.f.intrinsic(f"llvm.x86.{instruction}", VOID, I8(sums), I8(pixels), I8(weights))
