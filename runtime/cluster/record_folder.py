"""The records of a run on a cluster: a folder beside the output, with a file for each block that is finished.

    header.json   what the run is of, as a run that goes on must be of the same
    plan.json     the plan, as `brickrt plan --output` writes it
    model.onnx    the model, where it was given as bytes
    log           a line for each block that a worker began or finished
    block-17      where block 17 wrote, checksums of it, and its rows of collected tensors

A record is there once what it says is on the disk; it is written under another name and renamed.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from brickrt.graph.errors import BrickError
from brickrt.runtime.files.descriptor import refused, sync_path
from brickrt.runtime.files.journal import journal_path

_DIGEST = 16  # bytes
_START = 8  # bytes that say how long the description is
HOW_TO_START_AGAIN = "leave out --resume to start again"


@dataclass(frozen=True)
class WrittenBox:
    """A box of an output, or of a spilled tensor, that a block wrote."""

    output: str
    lo: tuple[int, ...]
    extents: tuple[int, ...]
    checksum: str
    itemsize: int

    @property
    def nbytes(self) -> int:
        """Its bytes, as the output's type has them."""
        return math.prod(self.extents) * self.itemsize


@dataclass(frozen=True)
class BlockRecord:
    """A finished block: what it wrote, its rows of collected tensors behind one another, bytes that it read of inputs,
    and what it wrote of spilled tensors."""

    boxes: tuple[WrittenBox, ...]
    payload: bytes
    read: int = 0
    spilled: tuple[WrittenBox, ...] = ()


class RecordFolder:
    """The folder, as coordinator and workers see it: it is on a disk that all of them share."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def beside(output: str | Path) -> RecordFolder:
        """The folder for an output. Raises BrickError where a run of one process has its journal there."""
        folder = RecordFolder(journal_path(Path(output).absolute()))
        if folder.path.exists() and not folder.path.is_dir():
            raise BrickError(f"{folder.path}: a run without a cluster was ended here: resume it so, or remove the file")
        return folder

    @property
    def plan(self) -> Path:
        """The plan's file."""
        return self.path / "plan.json"

    @property
    def model(self) -> Path:
        """The model's file, where it was given as bytes."""
        return self.path / "model.onnx"

    # ---- the coordinator's

    @property
    def is_begun(self) -> bool:
        """Whether there is a run here, to go on with or under way."""
        return (self.path / "header.json").exists()

    @contextmanager
    def locked(self, resume: bool) -> Iterator[None]:
        """Has the folder to this process. Raises BrickError where another coordinator has it, or, with `resume`, there
        is no run to go on with."""
        if resume and not self.is_begun:
            raise BrickError(f"{self.path}: there are no records of a run to go on with: {HOW_TO_START_AGAIN}")
        with refused(self.path):
            self.path.mkdir(exist_ok=True)
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise BrickError(
                f"{self.path}: another run writes this output: wait for it, or give another path"
            ) from None
        finally:
            with suppress(OSError):  # it is not empty, or is gone
                self.path.rmdir()
            os.close(fd)

    def clear(self) -> None:
        """Removes the records of an earlier run."""
        with refused(self.path):
            (self.path / "header.json").unlink(missing_ok=True)  # first: without it nothing else counts
            for file in self.path.iterdir():
                file.unlink()

    def write_header(self, header: Mapping[str, Any]) -> None:
        """Says what the run is of."""
        self.write("header.json", json.dumps(dict(header), indent=1).encode())

    def header(self) -> dict[str, Any]:
        """What the run is of. Raises BrickError where that cannot be read."""
        try:
            found = json.loads((self.path / "header.json").read_bytes())
        except (OSError, ValueError) as e:
            raise BrickError(f"{self.path}: the run's header cannot be read ({e}): {HOW_TO_START_AGAIN}") from None
        return dict(found)

    def remove(self) -> None:
        """Removes the folder: the outputs are whole."""
        with refused(self.path):
            (self.path / "header.json").unlink()
            shutil.rmtree(self.path)
        sync_path(self.path.parent)

    # ---- the workers'

    def check_run(self, run: str) -> None:
        """Raises BrickError where the run was ended, or another has begun in its place."""
        try:
            current = json.loads((self.path / "header.json").read_bytes()).get("run")
        except (OSError, ValueError):
            current = None
        if current != run:
            raise BrickError(f"{self.path}: the run that this block is of has ended: nothing is written")

    def finish(self, number: int, record: BlockRecord) -> None:
        """Writes a block's record; it is on the disk when this returns. Sync the sinks before."""
        found = {"boxes": _described(record.boxes), "read": record.read, "spilled": _described(record.spilled)}
        described = json.dumps(found).encode()
        data = len(described).to_bytes(_START, "little") + described + record.payload
        self.write(f"block-{number}", blake2b(data, digest_size=_DIGEST).digest() + data)

    def record(self, number: int) -> BlockRecord | None:
        """A block's record; None where there is none, or it is damaged."""
        try:
            content = (self.path / f"block-{number}").read_bytes()
        except FileNotFoundError:
            return None
        data = content[_DIGEST:]
        if blake2b(data, digest_size=_DIGEST).digest() != content[:_DIGEST]:
            return None
        begin = _START + int.from_bytes(data[:_START], "little")
        found = json.loads(data[_START:begin])
        return BlockRecord(_boxes(found["boxes"]), data[begin:], found["read"], _boxes(found["spilled"]))

    def log(self, number: int, what: str) -> None:
        """Adds a line on a block; lines of several workers do not mix."""
        with refused(self.path), open(self.path / "log", "ab", buffering=0) as file:
            file.write(f"{number} {what} {os.uname().nodename} {os.getpid()}\n".encode())

    def logged(self, what: str) -> list[int]:
        """The blocks that were logged with this word, in order."""
        try:
            lines = (self.path / "log").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [int(line.split()[0]) for line in lines if line.split()[1] == what]

    def write(self, name: str, data: bytes) -> None:
        """Writes a file of the folder whole or not at all."""
        part = self.path / f"{name}.{os.uname().nodename}.{os.getpid()}.part"
        with refused(self.path / name):
            with open(part, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self.path / name)
        sync_path(self.path)


def _described(boxes: Iterable[WrittenBox]) -> list[list[Any]]:
    return [[box.output, box.lo, box.extents, box.checksum, box.itemsize] for box in boxes]


def _boxes(described: Iterable[Sequence[Any]]) -> tuple[WrittenBox, ...]:
    return tuple(WrittenBox(name, tuple(lo), tuple(extents), *rest) for name, lo, extents, *rest in described)
