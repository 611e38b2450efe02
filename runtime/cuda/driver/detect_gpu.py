"""Whether there is a GPU for the engine, asked of the driver's library alone: CuPy takes a second to load."""

from __future__ import annotations

import ctypes
import sys
from importlib.util import find_spec

from brickrt.runtime.cuda.driver.device_spec import LEAST_CAPABILITY

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
MAJOR, MINOR = 75, 76  # attributes: compute capability


def gpu_present() -> bool:
    """Whether the first GPU is new enough, and CuPy is installed. Never raises; starts the driver in this process."""
    try:
        return find_spec("cupy") is not None and _capability() >= LEAST_CAPABILITY
    except ValueError:  # something else of that name
        return False


def _capability() -> tuple[int, int]:
    """That of the first GPU; (0, 0) where the driver tells of none."""
    try:
        cuda = ctypes.CDLL(LIBRARY)
        device, found = ctypes.c_int(), (ctypes.c_int(), ctypes.c_int())
        failed = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0)
        for value, attribute in zip(found, (MAJOR, MINOR), strict=True):
            failed = failed or cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
    except (OSError, AttributeError):  # no library, or another one of that name
        return 0, 0
    return (0, 0) if failed else (found[0].value, found[1].value)
