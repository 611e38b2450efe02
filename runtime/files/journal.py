"""The journal of a run: which units are finished, so that a run that was killed can be gone on with."""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.runtime.files.boxes import Extents, added, as_bytes, pieces
from brickrt.runtime.files.descriptor import part_of, read_at, refused, sync_file, sync_path, write_at
from brickrt.runtime.files.formats.box_files import BoxSink

_MAGIC = b"brickrt journal 1\n"
_FRAME = struct.Struct("<QI")  # bytes that follow, their CRC-32
_KEY = struct.Struct("<HH")  # numbers in the key, bytes in the checksum
_SUFFIX = ".brickrt-journal"
PIECE = 2**20  # bytes that are read at a time; keys, checksums and the header are in the first of a frame

Key = tuple[int, ...]


@dataclass(frozen=True)
class Record:
    """A finished unit: the checksum of what it wrote, and where in the journal results lie that later units need. They
    may be large, and only a run that is gone on with reads them."""

    checksum: str
    at: int = 0
    nbytes: int = 0


def journal_path(output: str | Path) -> Path:
    """Where the journal of an output is: beside it."""
    path = Path(str(output).partition("::")[0])
    return path.with_name(f"{path.name}{_SUFFIX}")


def require_journal(path: Path) -> None:
    """Raises BrickError where no run has left a journal to go on with."""
    if not path.exists():
        raise BrickError(f"{path}: there is no such journal of a run to go on with: leave out --resume to start")


class JournalPlace:
    """Where a new journal will be, in place of an older one. While it is held, no other run begins or goes on with the
    output: take it before anything of the output is touched. Raises BrickError where another run has it."""

    def __init__(self, path: Path) -> None:
        self.path, self.part = path, part_of(path)
        self._older: int | None = None
        self._output = path.with_name(path.name.removesuffix(_SUFFIX))  # which errors name: users do not know the other
        if not path.parent.is_dir():
            raise BrickError(f"{self._output}: there is no folder {path.parent}: create it, or give another path")
        self.fd = self._locked()
        try:
            if path.exists():
                self._older = _opened(path)
        except BaseException:
            self._leave()
            raise

    def _locked(self) -> int:
        """The part file, locked. Whoever had it may have removed it in between: then there is another one to be had."""
        while True:
            with refused(self._output):
                fd = os.open(self.part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                _lock(fd, self.path)
                if self.part.exists() and os.path.samestat(os.fstat(fd), os.stat(self.part)):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def __enter__(self) -> JournalPlace:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Gives the place up, unless a journal has it."""
        if self.fd >= 0:
            self._leave()

    def take(self) -> int:
        """The descriptor, for whoever closes it then: what was written to it becomes the journal."""
        with refused(self.path):
            os.replace(self.part, self.path)
        sync_path(self.path.parent)
        fd, self.fd = self.fd, -1
        self._close_older()
        return fd

    def _leave(self) -> None:
        with suppress(OSError):
            os.unlink(self.part)
        os.close(self.fd)
        self.fd = -1
        self._close_older()

    def _close_older(self) -> None:
        if self._older is not None:
            os.close(self._older)
            self._older = None


class Journal:
    """An append-only file of finished units. One process has it open at a time.

    Create the output's sink first: a journal that is there says that there is an output to go on with.
    """

    def __init__(self, path: Path, fd: int, end: int, finished: dict[Key, Record]) -> None:
        self.path, self.finished = path, finished
        self._fd, self._end = fd, end

    @classmethod
    def create(cls, place: JournalPlace, header: Mapping[str, str]) -> Journal:
        """A new journal. `header` maps words, such as "model", to digests."""
        with refused(place.path):
            os.ftruncate(place.fd, 0)
        data = _MAGIC + _framed(json.dumps(dict(header)).encode())
        write_at(place.fd, memoryview(data), 0, place.path)
        sync_file(place.fd, place.path)
        return cls(place.path, place.take(), len(data), {})

    @classmethod
    def resume(cls, path: Path, header: Mapping[str, str]) -> Journal:
        """The journal of a run that was stopped. A last record that is torn is dropped. Raises BrickError where there
        is none, and where a digest of `header` is another one than then."""
        require_journal(path)
        fd = _opened(path)
        try:
            then, finished, end = _parsed(fd, path)
            _check_header(path, then, header)
            with refused(path):
                os.ftruncate(fd, end)
        except BaseException:
            os.close(fd)
            raise
        return cls(path, fd, end, finished)

    def finish(self, key: Key, checksum: str, payload: bytes = b"") -> None:
        """Says that a unit is finished; it is on the disk when this returns. Call the sink's `sync` before. Where it
        raises BrickError, as the disk is full, the unit is not finished."""
        word = checksum.encode()
        numbers = struct.pack(f"<{len(key)}q", *key)
        data = _framed(_KEY.pack(len(key), len(word)) + numbers + word + payload)
        try:
            write_at(self._fd, memoryview(data), self._end, self.path)
            sync_file(self._fd, self.path)
        except BrickError:
            with suppress(OSError):
                os.ftruncate(self._fd, self._end)
            raise
        self._end += len(data)
        self.finished[key] = Record(checksum, self._end - len(payload), len(payload))

    def results(self, key: Key) -> bytes:
        """The results of a finished unit, as `finish` was given them."""
        record = self.finished[key]
        return _read(self._fd, record.at, record.nbytes, self.path)

    def close(self) -> None:
        """Closes the journal; a later run may go on with it."""
        os.close(self._fd)

    def remove(self) -> None:
        """Removes the journal: the output is whole. Call the sink's `close` before."""
        with refused(self.path):
            os.unlink(self.path)
        os.close(self._fd)
        sync_path(self.path.parent)


def read_journal(path: Path) -> tuple[dict[str, str], dict[Key, Record]]:
    """The header and the finished units, while another process may write the journal."""
    with refused(path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        header, finished, _ = _parsed(fd, path)
    finally:
        os.close(fd)
    return header, finished


def _opened(path: Path) -> int:
    """A locked descriptor of a journal."""
    with refused(path):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        _lock(fd, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _lock(fd: int, path: Path) -> None:
    import fcntl  # here, as Windows lacks it and runs in memory need it not

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
        raise BrickError(f"{path}: another run writes this output: wait for it, or give another path") from e


def _read(fd: int, at: int, nbytes: int, path: Path) -> bytes:
    data = bytearray(nbytes)
    read_at(fd, memoryview(data), at, path)
    return bytes(data)


def _framed(data: bytes) -> bytes:
    return _FRAME.pack(len(data), zlib.crc32(data)) + data


def _frame(fd: int, at: int, path: Path) -> tuple[bytes, int] | None:
    """The first bytes, PIECE at most, of the content of the frame that begins at `at`, and how many it has; None where
    it is torn."""
    begin, end = at + _FRAME.size, os.fstat(fd).st_size
    if begin > end:
        return None
    length, crc = _FRAME.unpack(_read(fd, at, _FRAME.size, path))
    if length > end - begin:
        return None
    first, found = b"", 0
    for start in range(begin, begin + length, PIECE):
        piece = _read(fd, start, min(PIECE, begin + length - start), path)
        first, found = first or piece, zlib.crc32(piece, found)
    return (first, length) if found == crc else None


def _parsed(fd: int, path: Path) -> tuple[dict[str, str], dict[Key, Record], int]:
    """The header, the finished units, and where the last whole record ends."""
    at = len(_MAGIC)
    begins_so = os.fstat(fd).st_size >= at and _read(fd, 0, at, path) == _MAGIC
    header = _frame(fd, at, path) if begins_so else None
    if header is None:
        raise BrickError(f"{path}: is damaged or no journal of this version: leave out --resume to start again")
    finished: dict[Key, Record] = {}
    at += _FRAME.size + header[1]
    while (frame := _frame(fd, at, path)) is not None and frame[1]:
        content, length = frame
        count, word = _KEY.unpack_from(content)
        key = struct.unpack_from(f"<{count}q", content, _KEY.size)
        begin = _KEY.size + 8 * count
        at += _FRAME.size
        finished[key] = Record(content[begin : begin + word].decode(), at + begin + word, length - begin - word)
        at += length
    return json.loads(header[0]), finished, at


def _check_header(path: Path, then: Mapping[str, str], now: Mapping[str, str]) -> None:
    changed = [word for word in {**then, **now} if then.get(word) != now.get(word)]
    if changed:
        others = f", and so are {', '.join(changed[1:])}" if changed[1:] else ""
        raise BrickError(
            f"{path}: the {changed[0]} is another one than when this run was begun{others}:"
            " leave out --resume to start again"
        )


def stored_checksum(sink: BoxSink, dtype: np.dtype, lo: Extents, extents: Extents) -> str:
    """The `checksum` of a box as it is in the file, read in pieces; `dtype` is that of the file."""
    found = 0
    for offset, part in pieces(extents, dtype.itemsize):
        read = np.empty(part, dtype)
        sink.read(added(lo, offset), read)
        found = zlib.crc32(as_bytes(read), found)
    return f"{found:08x}"


def verify(
    journal: Journal, sink: BoxSink, dtype: np.dtype, box: Callable[[Key], tuple[Extents, Extents] | None]
) -> list[Key]:
    """Reads the finished units back, and takes those whose bytes are others than then from `journal.finished`, so
    that they are done again; returns them. `box` says where a unit begins and its extents, None for units that wrote
    nothing."""
    torn = []
    for key, record in journal.finished.items():
        where = box(key)
        if where is None or not math.prod(where[1]):
            continue
        try:
            whole = stored_checksum(sink, dtype, *where) == record.checksum
        except BrickError:  # a chunk that cannot be decoded is torn as well
            whole = False
        if not whole:
            torn.append(key)
    for key in torn:
        del journal.finished[key]
    return torn
