"""Memory that begins where vectors like it to."""

from __future__ import annotations

import ctypes

import numpy as np

ALIGNMENT = 64


def aligned_empty(nbytes: int) -> np.ndarray:
    """Bytes that begin at a multiple of the widest vector."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """The bytes of the array's elements, in row-major order."""
    out = aligned_empty(array.nbytes)
    out.view(array.dtype).reshape(array.shape)[...] = array
    return out


def give_back_freed() -> None:
    """Returns what compiling freed to the system, where the C library can: glibc keeps it otherwise."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
