"""Importing this module makes all CPU kernels known to `choose_kernel`."""

from brickrt.ops.cpu import concat, interp, lane_conv, map, matmul, pool, reduce, take, transpose

__all__ = ["concat", "interp", "lane_conv", "map", "matmul", "pool", "reduce", "take", "transpose"]
