"""Blobs on disk by name: compiled kernels, plans and calibrations.

The folder and the one above it belong to the user alone and are used only while that holds. A file carries a MAC of
its name and content, made with the user's secret (`cache_key.py`), and is dropped where that does not match: edited,
cut, renamed and planted files are none. The least recently used files go when the folder grows past its bound.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from brickrt.runtime.cache.cache_key import MAC_BYTES, mac_of, make_key, read_key
from brickrt.runtime.cache.owned_files import is_own_folder, read_own

BOUND_BYTES = 512 << 20
TRIMMING = "00"
"""Looking at a whole folder takes a while: writing a blob whose digest begins so does, one in 256."""
OURS = re.compile(r"[0-9a-f]{32}|\.new-.*")
"""Names of blobs, which are digests, and of those being written: what else is in a folder is not ours to drop."""
NOWHERE = Path(os.devnull) / "brickrt"
"""A folder that no system has: it holds nothing and keeps nothing."""
_warned: list[Path] = []  # of a folder that is not trusted, once per process


def cache_root() -> Path:
    """The folder of all of brickrt's caches: BRICKRT_CACHE_DIR, or the user's cache directory. NOWHERE where the user
    has no home, as those of containers may not."""
    if told := os.environ.get("BRICKRT_CACHE_DIR"):
        return Path(told)
    try:
        root = Path(platformdirs.user_cache_dir("brickrt"))
    except RuntimeError:
        return NOWHERE
    return root if root.is_absolute() else NOWHERE


def sources_digest(*folders: Path, without: tuple[str, ...] = ()) -> str:
    """Digest of the sources below these folders, except below folders named in `without`.

    As part of a blob's name it hides what other versions of the code made.
    """
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(_sources(str(folder), without)):
            with open(path, "rb", buffering=0) as source:
                digest.update(source.read())
    return digest.hexdigest()


def _sources(folder: str, without: tuple[str, ...]) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir() and entry.name not in without:
                yield from _sources(entry.path, without)
            elif entry.name.endswith((".py", ".cuh")):
                yield entry.path


@dataclass(frozen=True)
class DiskCache:
    """Blobs in one folder, each named by a digest of 32 hexadecimal digits. A folder that cannot be trusted holds
    nothing and keeps nothing; one that cannot be written keeps nothing new."""

    folder: Path
    bound: int = BOUND_BYTES

    @staticmethod
    def open(name: str) -> DiskCache:
        """The cache `name` below the folder of all caches."""
        return DiskCache(cache_root() / name)

    @property
    def root(self) -> Path:
        """The folder above, which has the secret."""
        return self.folder.parent

    @property
    def trusted(self) -> bool:
        """Whether the folder and the one above are ours and nobody else can write into them. Where they are there, but
        are not, one line on stderr says so once."""
        try:
            infos = {self.root: self.root.stat(), self.folder: self.folder.lstat()}
        except OSError:
            return False
        strange = [folder for folder, info in infos.items() if not is_own_folder(info)]
        if strange and not _warned:
            _warned.append(strange[0])
            print(f"brickrt: no caches: {strange[0]} is no folder that this user alone writes", file=sys.stderr)
        return not strange

    def get(self, name: str) -> bytes | None:
        """The blob, or None where there is none that can be trusted."""
        if not self.trusted:
            return None
        try:
            content = read_own(self.folder / name, self.bound, touch=True)
        except OSError:
            return None
        key = read_key(self.root)
        if content is None or key is None:
            return None
        mac, blob = content[:MAC_BYTES], content[MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(key, name, blob)):
            _drop(self.folder / name)
            return None
        return blob

    def put(self, name: str, blob: bytes) -> None:
        """Keeps a blob, atomically; where the folder cannot be written, the work is only not remembered."""
        with suppress(OSError):
            for folder in (*reversed(self.folder.parents), self.folder):  # made for this user alone, all of them
                folder.mkdir(mode=0o700, exist_ok=True)
            key = make_key(self.root) if self.trusted else None
            if key is None:
                return
            self._write(name, self._mac(key, name, blob) + blob)
            if name.startswith(TRIMMING):
                self.trim()

    def _mac(self, key: bytes, name: str, blob: bytes) -> bytes:
        return mac_of(key, f"{self.folder.name}/{name}", blob)

    def _write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(content)
            if path.is_dir() and not path.is_symlink():
                _drop(path)
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)

    def trim(self) -> None:
        """Drops the least recently used blobs beyond the bound."""
        if not self.trusted:
            return
        entries = []
        for entry in os.scandir(self.folder):
            if not OURS.fullmatch(entry.name):
                continue
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            entries.append((info.st_mtime, info.st_size, entry.path))
        excess = sum(size for _, size, _ in entries) - self.bound
        for _, size, path in sorted(entries):
            if excess <= 0:
                return
            _drop(Path(path))
            excess -= size


def _drop(path: Path) -> None:
    """Removes what is there, if that is possible: of folders, empty ones."""
    with suppress(OSError):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
