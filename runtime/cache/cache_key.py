"""The secret of a user's caches: a file of random bytes that nobody else reads, beside the folders of the caches.

A blob's file has a MAC made with it, a message authentication code: whoever can write the folders, but not read this
file, cannot make one that is taken. A file that others could have read or written, or of another length, is no secret:
a new one takes its place.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from brickrt.runtime.cache.owned_files import OTHERS_USE, read_own

SECRET = "secret"
SECRET_BYTES = 32
MAC_BYTES = 32


def mac_of(key: bytes, name: str, blob: bytes) -> bytes:
    """The MAC of a blob under this name, 32 bytes: only those who have the key can make it."""
    mac = hashlib.blake2b(name.encode() + b"\0", digest_size=MAC_BYTES, key=key)
    mac.update(blob)
    return mac.digest()


def read_key(root: Path) -> bytes | None:
    """The secret of the caches below `root`; None where there is none to trust."""
    with suppress(OSError):
        key = read_own(root / SECRET, SECRET_BYTES, OTHERS_USE)
        return key if key is not None and len(key) == SECRET_BYTES else None
    return None


def make_key(root: Path) -> bytes | None:
    """The secret of the caches below `root`, made where there is none to trust; None where that is in vain. Of several
    processes that make one, all get the same. Raises OSError where the folder cannot be written."""
    key = read_key(root)
    if key is None:
        _write_secret(root / SECRET)
        key = read_key(root)
    return key


def _write_secret(path: Path) -> None:
    """A file appears with all of its bytes, and in place of no other, unless that is one that cannot be trusted."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")  # for this user alone, and never an old file
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(secrets.token_bytes(SECRET_BYTES))
        try:
            os.link(temporary, path)
        except OSError:  # there is a file, or there are no links on this file system
            if read_key(path.parent) is None:
                os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
