"""Importing this module makes all CPU kernels known to `choose_kernel`."""

from brickrt.ops.cpu import concat, interp, lane_conv, map, matmul, pool, reduce, rowwise, segments, take, transpose
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.strassen import StrassenKernel
from brickrt.ops.cpu.strassen_twice import StrassenTwiceKernel
from brickrt.ops.cpu.winograd import (
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
    "interp",
    "lane_conv",
    "map",
    "matmul",
    "pool",
    "reduce",
    "rowwise",
    "segments",
    "take",
    "transpose",
]
