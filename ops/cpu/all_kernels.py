"""Importing this module makes all CPU kernels known to `choose_kernel`."""

from typing import TypeAlias

from brickrt.ops.cpu.amx.kernel import AmxMaker
from brickrt.ops.cpu.elementwise import interp, map
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.moves import concat, gather_rows, take, transpose
from brickrt.ops.cpu.paired.kernel import PairedKernel
from brickrt.ops.cpu.pool import kernel as pool
from brickrt.ops.cpu.products import depthwise
from brickrt.ops.cpu.products.matrices import block_matmul
from brickrt.ops.cpu.products.matrices import kernel as matmul
from brickrt.ops.cpu.recurrences import kernel as recurrences
from brickrt.ops.cpu.reductions import partial_moments, partial_reduce, reduce, rowwise, running_sum
from brickrt.ops.cpu.sampling import deformed_columns, grid_sample
from brickrt.ops.cpu.strassen.kernel import StrassenKernel, TwoLevelStrassenKernel
from brickrt.ops.cpu.strassen.raw_kernel import RawStrassenKernel
from brickrt.ops.cpu.winograd.integers.kernel import IntegerWinogradMaker
from brickrt.ops.cpu.winograd.kernel import WinogradMaker

KernelMaker: TypeAlias = type[Kernel] | WinogradMaker | AmxMaker

ALGORITHMS: dict[str, KernelMaker] = {
    "strassen": StrassenKernel,
    "strassen2": TwoLevelStrassenKernel,
    "strassen2-raw": RawStrassenKernel,
    "paired": PairedKernel,
    "tiles": AmxMaker(),
    **{f"winograd{edge}": WinogradMaker(edge) for edge in (2, 3, 4, 5, 6)},
    "winograd4-integers": IntegerWinogradMaker(4),
    **{f"winograd{edge}-paired": WinogradMaker(edge, paired=True) for edge in (2, 3, 4, 5, 6)},
    **{f"winograd{edge}-raw": WinogradMaker(edge, raw=True) for edge in (2, 3, 4, 5, 6)},
    **{f"winograd{edge}-held-raw": WinogradMaker(edge, raw=True, held=True) for edge in (2, 3, 4, 5, 6)},
    **{f"winograd{edge}-paired-raw": WinogradMaker(edge, raw=True, paired=True) for edge in (2, 3, 4, 5, 6)},
}
"""Kernels that a plan asks for by name. Other operators are computed by the kernels that `choose_kernel` chooses."""

__all__ = [
    "ALGORITHMS",
    "KernelMaker",
    "block_matmul",
    "concat",
    "deformed_columns",
    "depthwise",
    "gather_rows",
    "grid_sample",
    "interp",
    "map",
    "matmul",
    "partial_moments",
    "partial_reduce",
    "pool",
    "recurrences",
    "reduce",
    "rowwise",
    "running_sum",
    "take",
    "transpose",
]
