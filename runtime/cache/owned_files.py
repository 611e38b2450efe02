"""Files and folders that only this user writes: what others could have put in place is not opened as ours.

Where a system has no owners and modes (Windows), every regular file and every folder counts as ours.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

OTHERS_WRITE, OTHERS_USE = 0o022, 0o077
"""Bits of a mode that let others write, or do anything at all."""
_FLAGS = [getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY")]
READING = os.O_RDONLY | sum(_FLAGS)
"""A link is not followed, and a FIFO is opened without waiting for its writer."""


def is_own_folder(info: os.stat_result) -> bool:
    """Whether this is a folder of ours that nobody else can write into."""
    return stat.S_ISDIR(info.st_mode) and _is_own(info, OTHERS_WRITE)


def read_own(path: Path, most: int, barred: int = OTHERS_WRITE, touch: bool = False) -> bytes | None:
    """The content of a regular file of ours, of `most` bytes, whose mode has none of the barred bits, else None. All is
    asked of the opened file. `touch` makes now the time of its last change, where the file system may be written.
    Raises OSError where there is none to open."""
    handle = os.open(path, READING)
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or not _is_own(info, barred) or info.st_size > most:
            return None
        if touch:
            with suppress(OSError):
                os.utime(handle if os.utime in os.supports_fd else path)
        with os.fdopen(handle, "rb", buffering=0, closefd=False) as f:
            return f.read()
    finally:
        os.close(handle)


def _is_own(info: os.stat_result, barred: int) -> bool:
    return not hasattr(os, "getuid") or (info.st_uid == os.getuid() and not info.st_mode & barred)
