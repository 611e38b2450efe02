"""Memory of the device on the host: allocations between guards, pinned memory that a fault freezes, arrays."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

GUARD = 256  # bytes around each allocation, of a pattern that nobody may touch


class HostMemory:
    """Zeros between guards."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._room = np.zeros(nbytes + 3 * GUARD, np.uint8)
        self.frozen: np.ndarray | None = None
        start = GUARD + -self._room.ctypes.data % GUARD
        self.address = self._room.ctypes.data + start
        self._room[:start] = self._room[start + nbytes :] = 0xA5
        self._start = start

    def check(self) -> None:
        before, after = self._room[: self._start], self._room[self._start + self.nbytes :]
        assert (before == 0xA5).all() and (after == 0xA5).all(), "something was written outside of an allocation"


class HostPinned(HostMemory):
    """Memory of the host that devices copy to and from."""

    def freeze(self) -> None:
        """What is written later is lost."""
        self.frozen = self.array.copy()

    def thaw(self) -> None:
        self.array[:] = self.frozen

    def __init__(self, nbytes: int) -> None:
        super().__init__(nbytes)
        self.array = self._room[self._start : self._start + nbytes]


class HostArray:
    """An array "on the device": what CuPy's are to the real driver."""

    def __init__(self, array: np.ndarray) -> None:
        self._memory = HostMemory(max(array.nbytes, 1))
        buffer = (ctypes.c_char * max(array.nbytes, 1)).from_address(self._memory.address)
        self._array = np.ndarray(array.shape, array.dtype, buffer)
        self._array[...] = array
        self.shape, self.dtype, self.ndim, self.nbytes = array.shape, array.dtype, array.ndim, array.nbytes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        address = self._memory.address, False
        return {"shape": self.shape, "typestr": self.dtype.str, "data": address, "version": 3}

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("no silent copies to the host")

    def get(self) -> np.ndarray:
        return self._array.copy()
