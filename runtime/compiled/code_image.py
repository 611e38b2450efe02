"""Compiled code in this process: brought to where it lies, and made executable."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Sequence

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.runtime.compiled.file_header import ImportRecord

WORD = 8  # bytes of an address


class CodeImage:
    """Machine code, whose functions live as long as this object. Its memory is written first and executable then, never
    both."""

    def __init__(self, code: np.ndarray, rebase: np.ndarray, imports: Sequence[ImportRecord]) -> None:
        """`code` is uint8, for the address 0; `rebase` are byte offsets of the addresses in it that move with it.

        Raises BrickError where the system gives no memory to execute, or lacks a function.
        """
        self._memory = mmap.mmap(-1, max(code.nbytes, mmap.PAGESIZE), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        image = np.frombuffer(self._memory, np.uint8)
        self.base: int = image.ctypes.data
        image[: code.nbytes] = code
        _add(image, rebase, self.base)
        for one in imports:
            _add(image, np.array(one.places, np.int64), _address(one.symbol))
        self._protect(image.nbytes)

    def at(self, offset: int) -> int:
        """The address of what is so many bytes into the code."""
        return self.base + offset

    def _protect(self, nbytes: int) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        pages = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        access = mmap.PROT_READ | mmap.PROT_EXEC
        if library.mprotect(ctypes.c_void_p(self.base), ctypes.c_size_t(pages), access):
            why = os.strerror(ctypes.get_errno() or errno.EACCES)
            raise BrickError(f"the system gives no memory to execute code in ({why}): run the .onnx file elsewhere")


def _add(image: np.ndarray, places: np.ndarray, value: int) -> None:
    """Adds a value to the words at these places, which need not be aligned."""
    index = places.astype(np.int64)[:, None] + np.arange(WORD)
    words = np.ascontiguousarray(image[index]).view(np.uint64) + np.uint64(value)
    image[index] = words.view(np.uint8)


def _address(symbol: str) -> int:
    """A function of the C library or its library of mathematics."""
    for name in (None, "libm.so.6"):
        try:
            return ctypes.cast(getattr(ctypes.CDLL(name), symbol), ctypes.c_void_p).value or 0
        except (AttributeError, OSError):
            continue
    raise BrickError(f"the system has no function '{symbol}', which compiled code calls: use another C library")
