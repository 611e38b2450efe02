"""What formats open and make: files that are read and written box by box, and what is asked of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from brickrt.runtime.files.boxes import Extents


class BoxFile(Protocol):
    """An array that is read or written box by box, by one thread at a time."""

    @property
    def shape(self) -> Extents:
        """Its extents, in the file's order of axes."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """The type that is read or written, in this machine's byte order."""
        ...

    @property
    def name(self) -> str:
        """The path, or what an object is."""
        ...

    @property
    def chunks(self) -> Extents | None:
        """How it lies in the file: boxes aligned to it are the fastest. None where that is not known."""
        ...

    @property
    def buffer_bytes(self) -> int:
        """The most memory that it holds beside what it is given or asked for."""
        ...

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Fills `out`, which may have any strides and has the type `dtype`, with the box that begins at `lo`. Of a file
        that is being written, elements that were not are 0, or what was there before."""
        ...

    def close(self) -> None:
        """Closes what was opened here. A file that was written is made durable and gets its name, in place of what had
        it."""
        ...


class BoxSource(BoxFile, Protocol):
    """An array that is read box by box, by one thread at a time."""

    @property
    def axis(self) -> int:
        """The axis along which boxes will follow each other, which may be set. Chunks that a box leaves before their
        end are kept for the next, at most one row of chunks along this axis."""
        ...

    @axis.setter
    def axis(self, axis: int, /) -> None:
        """Says along which axis boxes will follow each other."""
        ...

    def identity(self) -> str:
        """A digest that changes when the content does, and not when the file is moved. Each source says what it
        covers."""
        ...


class BoxSink(BoxFile, Protocol):
    """An array that is written box by box, in any order, by one thread at a time. Until `close` the file has another
    name, which is the same in each run: `resume` goes on with it."""

    @property
    def axis(self) -> int:
        """The axis of rows, which `row_unit` counts."""
        ...

    @property
    def row_unit(self) -> int:
        """A write of a multiple of so many rows, that begins at a multiple, finishes what it writes: nothing is read
        back and written again."""
        ...

    @property
    def resumed(self) -> bool:
        """Whether it goes on with what an earlier run wrote."""
        ...

    def write(self, lo: Extents, array: np.ndarray) -> None:
        """Writes the box that begins at `lo`; `array` may have any strides and has the type `dtype`."""
        ...

    def sync(self) -> None:
        """Returns when everything written so far is on the disk."""
        ...

    def abandon(self, keep: bool = False) -> None:
        """Closes the file and removes it; with `keep` it stays under its temporary name, for a run that resumes."""
        ...


@dataclass(frozen=True)
class NamedFile:
    """A file by the name that was given: its path, with `::` before the name of an array inside it."""

    name: str

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.name.partition("::")[0])

    @property
    def inside(self) -> str:
        """The array inside it, "" where none is named."""
        return self.name.partition("::")[2].strip("/")


@dataclass(frozen=True)
class FileToRead(NamedFile):
    """A file that is opened. `dtype` and `shape` are what is expected, None where the file is to say it; files that are
    unpacked first are so into the folder `scratch`."""

    dtype: np.dtype | None = None
    shape: Extents | None = None
    scratch: Path | None = None


@dataclass(frozen=True)
class FileToWrite(NamedFile):
    """A file that is made, with rows along `axis`; see `create_sink` for the others."""

    shape: Extents
    dtype: np.dtype
    axis: int
    resume: bool = False
    chunks: Extents | None = None
    like: BoxSource | None = None
    remark: str = ""
