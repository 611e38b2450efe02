"""Importing this module makes all CUDA kernels known to `make_kernel`."""

from brickrt.ops.cuda.chains import pixel_chain
from brickrt.ops.cuda.elementwise import interp, map
from brickrt.ops.cuda.moves import move, take
from brickrt.ops.cuda.products import conv, conv_transpose, matmul
from brickrt.ops.cuda.reductions import partial_reduce, pool, reduce, rowwise

__all__ = [
    "conv",
    "conv_transpose",
    "interp",
    "map",
    "matmul",
    "move",
    "partial_reduce",
    "pixel_chain",
    "pool",
    "reduce",
    "rowwise",
    "take",
]
