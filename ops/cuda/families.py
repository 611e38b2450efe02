"""Importing this module makes all CUDA kernels known to `make_kernel`."""

import brickrt.ops.cuda.map
import brickrt.ops.cuda.pool  # noqa: F401

__all__: list[str] = []
