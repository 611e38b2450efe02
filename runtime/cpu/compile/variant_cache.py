"""Machine code of kernels by their outlines, in this process and on disk.

A blob holds all variants of one outline: a line of JSON that tells of each its symbol, answers, entries and bytes, then
their object files, one behind the other.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any

from brickrt.ops.cpu.emit.sizes import Formula
from brickrt.ops.cpu.sized_kernel import Variant
from brickrt.runtime.after_fork import tell_children
from brickrt.runtime.cache.disk_cache import DiskCache

KEPT = 512  # outlines whose code this process keeps
MOST = 32  # variants of an outline: the newest stay


class VariantCache:
    """Variants by the digest of their outline. What was read once from a folder is not read again."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: OrderedDict[tuple[DiskCache, str], tuple[Variant, ...]] = OrderedDict()
        tell_children(self)

    def after_fork(self) -> None:
        """See `Forked`."""
        self._lock = Lock()

    def find(self, store: DiskCache, digest: str, numbers: Sequence[int]) -> Variant | None:
        """A variant that is good for these numbers: known here, or else on disk."""
        for read in (self._here, self._on_disk):
            for variant in read(store, digest):
                if variant.fits(numbers):
                    return variant
        return None

    def add(self, store: DiskCache, digest: str, variant: Variant) -> None:
        """Keeps a variant, here and on disk."""
        others = (v for v in self._on_disk(store, digest) if v.symbol != variant.symbol)
        kept = (variant, *others)[:MOST]
        self._keep(store, digest, kept)
        store.put(digest, encode(kept))

    def _here(self, store: DiskCache, digest: str) -> tuple[Variant, ...]:
        with self._lock:
            return self._known.get((store, digest), ())

    def _on_disk(self, store: DiskCache, digest: str) -> tuple[Variant, ...]:
        blob = store.get(digest)
        found = decode(blob) if blob is not None else ()
        self._keep(store, digest, found)
        return found

    def _keep(self, store: DiskCache, digest: str, variants: tuple[Variant, ...]) -> None:
        with self._lock:
            self._known[store, digest] = variants
            self._known.move_to_end((store, digest))
            while len(self._known) > KEPT:
                self._known.popitem(last=False)


VARIANTS = VariantCache()
"""Those of this process."""


def encode(variants: Sequence[Variant]) -> bytes:
    """The blob of variants."""
    told = [[v.symbol, v.answers, v.entries, len(v.image)] for v in variants]
    return b"\n".join([json.dumps(told).encode(), b"".join(v.image for v in variants)])


def decode(blob: bytes) -> tuple[Variant, ...]:
    """The variants of a blob: one that `encode` has made, as its MAC says."""
    line, _, images = blob.partition(b"\n")
    found, start = [], 0
    for symbol, answers, entries, nbytes in json.loads(line):
        asked = tuple((_formula(formula), answer) for formula, answer in answers)
        image = images[start : start + nbytes]
        found.append(Variant(symbol, asked, tuple(map(_formula, entries)), image))
        start += nbytes
    return tuple(found)


def _formula(read: Any) -> Formula:
    """A formula as JSON gives it."""
    return tuple(map(_formula, read)) if isinstance(read, list) else read
