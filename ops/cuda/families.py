"""Importing this module makes all CUDA kernels known to `make_kernel`."""

from brickrt.ops.cuda import conv, map, matmul, move, pool, reduce, rowwise

__all__ = ["conv", "map", "matmul", "move", "pool", "reduce", "rowwise"]
