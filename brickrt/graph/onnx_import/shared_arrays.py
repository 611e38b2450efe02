"""Arrays of other libraries as NumPy's, without a copy."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

CPU = 1  # a device type of DLPack
NOT_SHARED = (TypeError, ValueError, RuntimeError, BufferError, AttributeError)
"""What libraries raise for an array that they do not share: for one with gradients, or of a type that NumPy lacks."""


def shared_array(value: Any) -> np.ndarray | None:
    """An array of torch, JAX or any other library as NumPy's, on the same memory where its layout allows. None for what
    does not say that it is an array in the memory of the host, by `__array__` or DLPack."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, type):
        return None
    with suppress(*NOT_SHARED):
        if hasattr(value, "__array__"):
            return np.asarray(value)
        device = getattr(value, "__dlpack_device__", None)
        if device is not None and hasattr(value, "__dlpack__") and device()[0] == CPU:
            return np.from_dlpack(value)
    return None
