"""Importing this module makes all CUDA kernels known to `make_kernel`."""

from brickrt.ops.cuda import conv, conv_transpose, interp, map, matmul, move, pool, reduce, rowwise, take

__all__ = ["conv", "conv_transpose", "interp", "map", "matmul", "move", "pool", "reduce", "rowwise", "take"]
