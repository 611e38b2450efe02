"""Machine code of kernels by their outlines, in this process and on disk.

A blob holds all code of one outline: a line of JSON that tells of each its symbol, sizes and bytes, then the
object files, one behind the other.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

import numpy as np

from brickrt.ops.cpu.emit.size_program import SizeProgram
from brickrt.ops.cpu.sized_kernel import Outline, SizedCode
from brickrt.runtime.after_fork import tell_children
from brickrt.runtime.cache.disk_cache import DiskCache

KEPT_BYTES = 64 << 20  # of object files that this process keeps
MOST_CODES = 64  # of an outline: the newest stay
Codes = tuple[SizedCode, ...]


class CodeCache:
    """Code by the digest of its outline. What was read once from a folder is not read again, the least recently read
    goes first where all is too much."""

    def __init__(self) -> None:
        self._lock, self._nbytes = Lock(), 0
        self._known: OrderedDict[tuple[DiskCache, str], Codes] = OrderedDict()
        tell_children(self)

    def after_fork(self) -> None:
        """See `Forked`."""
        self._lock = Lock()

    def find(self, store: DiskCache, digest: str, outline: Outline) -> tuple[SizedCode, np.ndarray] | None:
        """Code that is good for the numbers of a kernel, and the table that it reads: known here, or else on disk."""
        for read in (self._here, self._on_disk):
            for code in read(store, digest):
                if (table := code.table(outline)) is not None:
                    return code, table
        return None

    def count(self, store: DiskCache, digest: str) -> int:
        """How many codes of this outline there are, for whatever numbers."""
        return len(self._here(store, digest) or self._on_disk(store, digest))

    def add(self, store: DiskCache, digest: str, code: SizedCode) -> None:
        """Keeps code, here and on disk."""
        others = (other for other in self._on_disk(store, digest) if other.symbol != code.symbol)
        kept = (code, *others)[:MOST_CODES]
        self._keep(store, digest, kept)
        store.put(digest, encode(kept))

    def _here(self, store: DiskCache, digest: str) -> Codes:
        with self._lock:
            return self._known.get((store, digest), ())

    def _on_disk(self, store: DiskCache, digest: str) -> Codes:
        """What is on disk, or, where that is nothing, here: folders may not be writable."""
        blob = store.get(digest)
        if blob is None:
            return self._here(store, digest)
        found = decode(blob)
        self._keep(store, digest, found)
        return found

    def _keep(self, store: DiskCache, digest: str, codes: Codes) -> None:
        with self._lock:
            self._nbytes += _nbytes(codes) - _nbytes(self._known.pop((store, digest), ()))
            self._known[store, digest] = codes
            while self._nbytes > KEPT_BYTES and len(self._known) > 1:
                self._nbytes -= _nbytes(self._known.popitem(last=False)[1])


CODE_CACHE = CodeCache()
"""That of this process."""


def _nbytes(codes: Codes) -> int:
    return sum(len(code.image) for code in codes)


def encode(codes: Sequence[SizedCode]) -> bytes:
    """The blob of an outline's code."""
    told = [[code.symbol, code.sizes.steps, code.sizes.entries, len(code.image)] for code in codes]
    return b"\n".join([json.dumps(told).encode(), b"".join(code.image for code in codes)])


def decode(blob: bytes) -> Codes:
    """The code in a blob: one that `encode` has made, as its MAC says."""
    line, _, images = blob.partition(b"\n")
    found, start = [], 0
    for symbol, steps, entries, nbytes in json.loads(line):
        sizes = SizeProgram([(word, a, b, answer) for word, a, b, answer in steps], entries)
        found.append(SizedCode(symbol, sizes, images[start : start + nbytes]))
        start += nbytes
    return tuple(found)
