"""Whether this process may use AMX: Linux gives tile registers to processes that ask for them.

Source: Linux, Documentation/arch/x86/xstate.rst.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache

ARCH_PRCTL, REQUEST, TILE_DATA = 158, 0x1023, 18  # the system call, its ARCH_REQ_XCOMP_PERM, and what is asked for


@cache
def may_use_tiles() -> bool:
    """Asks Linux for tile registers, for all threads of this process and those it forks; False where it has none."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return bool(call(ctypes.c_long(ARCH_PRCTL), ctypes.c_long(REQUEST), ctypes.c_long(TILE_DATA)) == 0)
