"""Compiled files on disk: a header, and sections of bytes, each with its checksums.

    8 bytes    MAGIC
    8          length of the header, little-endian
    32         SHA-256 of the header
    …          the header, JSON; then zeros up to the next page
    …          sections, each from a page on; the file ends with the last of them

What a file holds is checked before any of it is used.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import threading
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.runtime.cache.parse_json import parse_json, read_as
from brickrt.runtime.compiled.file_header import SUFFIX, CompiledHeader, SectionRecord

MAGIC = b"\x89brick\r\n"
PREFIX = len(MAGIC) + 8 + 32
PAGE = 4096
CHUNK = 1 << 20  # bytes that one checksum is of
MOST_HEADER = 64 << 20
HOW_TO_COMPILE_AGAIN = "compile it again by brickrt compile"


@dataclass(frozen=True)
class FileContent:
    """What the header's JSON is: the header proper, and where the sections lie."""

    header: CompiledHeader
    sections: Mapping[str, SectionRecord]


def is_compiled(model: object) -> bool:
    """Whether this is the path of a compiled file: by what it begins with, or by its name where it cannot be read."""
    if not isinstance(model, str | Path):
        return False
    path = Path(model)
    with suppress(OSError, ValueError):
        if path.is_file():
            with path.open("rb") as f:
                return f.read(len(MAGIC)) == MAGIC or path.suffix == SUFFIX
    return path.suffix == SUFFIX


class OpenedFile:
    """A compiled file that is open: its header, checked, and its sections, checked as they are read."""

    def __init__(self, path: Path) -> None:
        """Raises BrickError where there is none, or the header is not what was written."""
        self.path = path
        try:
            self._file: BinaryIO = path.open("rb")
        except (OSError, ValueError) as e:
            raise BrickError(f"{path}: cannot be read ({getattr(e, 'strerror', e)}): check the path") from None
        try:
            content, self._start = self._content()
            self.header, self._sections = content.header, content.sections
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> OpenedFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def read(self, threads: int) -> dict[str, np.ndarray]:
        """The bytes of all sections by name, uint8, read-only: the file's own pages, checked by so many threads, for as
        long as the arrays live. Raises BrickError where one is not what was written."""
        found = {name: self._mapped(section) for name, section in self._sections.items()}
        todo = [
            (found[name][at : at + CHUNK], total)
            for name, section in self._sections.items()
            for at, total in zip(range(0, section.nbytes, CHUNK), section.sums, strict=True)
        ]
        wrong: list[int] = []
        workers = [threading.Thread(target=_check, args=(todo[k::threads], wrong)) for k in range(1, threads)]
        for worker in workers:
            worker.start()
        _check(todo[::threads], wrong)
        for worker in workers:
            worker.join()
        if wrong:
            self._refuse("was changed or damaged after it was written")
        return found

    def _mapped(self, section: SectionRecord) -> np.ndarray:
        if not section.nbytes:
            return np.empty(0, np.uint8)
        try:
            at = self._start + section.offset
            pages = mmap.mmap(self._file.fileno(), section.nbytes, access=mmap.ACCESS_READ, offset=at)
        except (OSError, ValueError):
            self._refuse("is damaged, or on a file system that maps no files")
        return np.frombuffer(pages, np.uint8)

    def _content(self) -> tuple[FileContent, int]:
        """The header, and where the data begins."""
        prefix = self._file.read(PREFIX)
        if prefix[: len(MAGIC)] != MAGIC:
            self._refuse("is no compiled model")
        length = int.from_bytes(prefix[len(MAGIC) : len(MAGIC) + 8], "little")
        text = self._file.read(length) if length <= MOST_HEADER else b""
        if len(text) != length or hashlib.sha256(text).digest() != prefix[-32:]:
            self._refuse("is cut off, or was changed after it was written")
        try:
            content = read_as(FileContent, parse_json(text), "a compiled model")
        except ValueError:
            self._refuse("was compiled by another version of brickrt")
        start = paged(PREFIX + length)
        ends = [start + section.offset + section.nbytes for section in content.sections.values()]
        if os.fstat(self._file.fileno()).st_size != max(ends, default=start):
            self._refuse("is cut off, or longer than it was written")
        if any(len(s.sums) != -(-s.nbytes // CHUNK) for s in content.sections.values()):
            self._refuse("is damaged")
        return content, start

    def _refuse(self, why: str) -> Any:
        raise BrickError(f"{self.path}: {why}: {HOW_TO_COMPILE_AGAIN}")


def _check(chunks: Sequence[tuple[np.ndarray, int]], wrong: list[int]) -> None:
    """Notes the checksums of chunks that are not what they should be."""
    wrong.extend(total for chunk, total in chunks if checksum(chunk) != total)


def checksum(chunk: np.ndarray) -> int:
    """A checksum of bytes, uint8, five times as fast as CRC-32 of all: that of the sums of their words of 64 bits, set
    out in rows of a page, along rows and along columns. Words that are wrong go unnoticed only where their errors
    cancel in every row and in every column."""
    whole = chunk.nbytes // PAGE * PAGE
    table = chunk[:whole].view(np.uint64).reshape(-1, PAGE // 8)
    sums = zlib.crc32(table.sum(axis=1).data, zlib.crc32(table.sum(axis=0).data))
    return zlib.crc32(chunk[whole:].data, sums)


def paged(nbytes: int) -> int:
    """The next multiple of a page."""
    return -(-nbytes // PAGE) * PAGE
