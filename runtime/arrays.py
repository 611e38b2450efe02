"""Arrays in a GPU's memory, recognised without importing the library that made them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from brickrt.ops.types import TensorType

CUDA, MANAGED = 2, 13  # device types of DLPack


class DeviceArrays(Protocol):
    """How an engine takes and makes arrays in its device's memory."""

    def view(self, value: Any, stream: Any) -> Any:
        """An array on the device as the engine's kind of array, without a copy where its elements lie in order; else it
        is copied on the caller's stream.

        Raises BrickError for what lies on another device.
        """
        ...

    def empty(self, kind: TensorType, stream: Any) -> Any:
        """An array of the engine's kind, first used on the caller's stream."""
        ...

    def host(self, array: Any, stream: Any) -> np.ndarray:
        """The values as a NumPy array, once the caller's stream has come to this point."""
        ...


def on_device(value: Any) -> bool:
    """Whether a value is an array in a GPU's memory, by the CUDA array interface or DLPack."""
    if isinstance(value, np.ndarray):
        return False
    if hasattr(value, "__cuda_array_interface__"):
        return True
    try:
        return value.__dlpack_device__()[0] in (CUDA, MANAGED)
    except Exception:  # no DLPack, or a device that it does not know: what reads the value says what is wrong
        return False
