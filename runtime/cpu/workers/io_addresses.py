"""Addresses of a call's inputs and outputs.

NumPy takes 8 µs to tell an array's address when a network has just filled the caches. So workers read it from the array
object themselves, in compiled code.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from functools import cache

import numpy as np

HEAD = object.__basicsize__  # bytes of an object before what is its own


@cache
def arrays_begin_with_address() -> bool:
    """Whether an array is an object at `id(array)` whose first word of its own is the address of its elements."""
    if sys.implementation.name != "cpython":
        return False
    array = np.empty(3)
    return ctypes.c_void_p.from_address(id(array) + HEAD).value == array.ctypes.data


class IoAddresses:
    """For each input and output of a program, `places` [arrays] is the address of a word; the word holds the address of
    the array's elements."""

    def __init__(self, count: int) -> None:
        self.places = np.zeros(count, np.int64)
        self._noted = None if arrays_begin_with_address() else np.zeros(count, np.int64)
        if self._noted is not None:
            self.places[:] = self._noted.ctypes.data + self._noted.itemsize * np.arange(count)
        self._words = self.places.data  # of which Python sets single ones, fast

    def put(self, arrays: Iterable[np.ndarray]) -> None:
        """Sets the arrays of the next run, which must live until it ends."""
        if self._noted is None:
            for k, array in enumerate(arrays):
                self._words[k] = id(array) + HEAD
        else:
            self._noted[:] = [array.ctypes.data for array in arrays]
