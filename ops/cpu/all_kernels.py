"""Importing this module makes all CPU kernels known to `choose_kernel`."""

from brickrt.ops.cpu.elementwise import interp, map
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.moves import concat, take, transpose
from brickrt.ops.cpu.pool import kernel as pool
from brickrt.ops.cpu.products import depthwise, matmul
from brickrt.ops.cpu.reductions import partial_reduce, reduce, rowwise
from brickrt.ops.cpu.strassen.kernel import StrassenKernel
from brickrt.ops.cpu.strassen.two_level_kernel import StrassenTwiceKernel
from brickrt.ops.cpu.winograd.kernel import (
    Winograd2Kernel,
    Winograd3Kernel,
    Winograd4Kernel,
    Winograd5Kernel,
    Winograd6Kernel,
)

ALGORITHMS: dict[str, type[Kernel]] = {
    "strassen": StrassenKernel,
    "strassen2": StrassenTwiceKernel,
    "winograd2": Winograd2Kernel,
    "winograd3": Winograd3Kernel,
    "winograd4": Winograd4Kernel,
    "winograd5": Winograd5Kernel,
    "winograd6": Winograd6Kernel,
}
"""Kernels that a plan asks for by name; other operators are computed by what `choose_kernel` gives."""

__all__ = [
    "ALGORITHMS",
    "concat",
    "depthwise",
    "interp",
    "map",
    "matmul",
    "partial_reduce",
    "pool",
    "reduce",
    "rowwise",
    "take",
    "transpose",
]
