"""CuPy and its interfaces to CUDA's runtime and driver, or an error that says how to get it."""

from __future__ import annotations

from brickrt.graph.errors import BrickError

try:
    import cupy
    from cupy.cuda import driver as cu
    from cupy.cuda import runtime as cudart
except ImportError as e:
    reason = " ".join(str(e).split())[:200]
    raise BrickError(
        f"device 'cuda' needs CuPy ({reason}): pip install 'brickrt[cuda13]' (or [cuda12]), or use --device cpu"
    ) from None

__all__ = ["FAILURES", "cu", "cudart", "cupy"]

FAILURES = (cudart.CUDARuntimeError, cu.CUDADriverError)
