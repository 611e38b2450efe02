"""Importing this module makes all CUDA kernels known to `make_kernel`."""

from brickrt.ops.cuda import conv, map, matmul, pool

__all__ = ["conv", "map", "matmul", "pool"]
