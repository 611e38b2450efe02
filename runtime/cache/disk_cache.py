"""Blobs on disk by name: compiled kernels, plans and calibrations.

The folder belongs to the user alone and is used only while that holds; a file carries the digest of its content and is
dropped where that does not match. The least recently used files go when the folder grows past its bound.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

BOUND_BYTES = 512 << 20
DIGEST_BYTES = 32
TRIMMING = "00"
"""Looking at a whole folder takes a while: writing a blob whose digest begins so does, one in 256."""


def cache_root() -> Path:
    """The folder of all of brickrt's caches: BRICKRT_CACHE_DIR, or the user's cache directory."""
    return Path(os.environ.get("BRICKRT_CACHE_DIR") or platformdirs.user_cache_dir("brickrt"))


def sources_digest(*folders: Path, without: tuple[str, ...] = ()) -> str:
    """Digest of the sources below these folders, except below folders named in `without`.

    As part of a blob's name it hides what other versions of the code made.
    """
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(_sources(folder, without)):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _sources(folder: Path, without: tuple[str, ...]) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir() and path.name not in without:
            yield from _sources(path, without)
        elif path.suffix in (".py", ".cuh"):
            yield path


@dataclass(frozen=True)
class DiskCache:
    """Named blobs in one folder; a folder that cannot be trusted or written holds nothing and keeps nothing."""

    folder: Path
    bound: int = BOUND_BYTES

    @staticmethod
    def open(name: str) -> DiskCache:
        """The cache `name` below the folder of all caches."""
        return DiskCache(cache_root() / name)

    @property
    def trusted(self) -> bool:
        """Whether the folder is ours and nobody else can write into it."""
        try:
            info = self.folder.lstat()
        except OSError:
            return False
        if not stat.S_ISDIR(info.st_mode):
            return False
        return not hasattr(os, "getuid") or (info.st_uid == os.getuid() and not info.st_mode & 0o022)

    def get(self, name: str) -> bytes | None:
        """The blob, or None where there is none that can be trusted."""
        if not self.trusted:
            return None
        path = self.folder / name
        try:
            content = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        digest, blob = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
        if hashlib.sha256(blob).digest() != digest:
            path.unlink(missing_ok=True)
            return None
        return blob

    def put(self, name: str, blob: bytes) -> None:
        """Keeps a blob, atomically; where the folder cannot be written, the work is only not remembered."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.trusted:
                return
            self._write(name, hashlib.sha256(blob).digest() + blob)
        except OSError:
            return
        if name.startswith(TRIMMING):
            self.trim()

    def _write(self, name: str, content: bytes) -> None:
        handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(content)
            os.replace(temporary, self.folder / name)
        finally:
            Path(temporary).unlink(missing_ok=True)

    def trim(self) -> None:
        """Drops the least recently used blobs beyond the bound."""
        if not self.trusted:
            return
        entries = []
        for entry in os.scandir(self.folder):
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            entries.append((info.st_mtime, info.st_size, entry.path))
        excess = sum(size for _, size, _ in entries) - self.bound
        for _, size, path in sorted(entries):
            if excess <= 0:
                return
            Path(path).unlink(missing_ok=True)
            excess -= size
