"""What others could do to a file of a cache, or what could happen to it; each makes it none that may be used."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

Attack = Callable[[Path], None]


def replaced_by(path: Path, make: Attack) -> None:
    """Puts something else at the path."""
    path.unlink()
    make(path)


def edited(path: Path) -> None:
    """The last byte is another."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def cut(path: Path) -> None:
    """The last byte is missing."""
    path.write_bytes(path.read_bytes()[:-1])


def emptied(path: Path) -> None:
    """Nothing is in it."""
    path.write_bytes(b"")


def enormous(path: Path) -> None:
    """More than memory holds, all of it a hole."""
    os.truncate(path, 1 << 42)


def junk_with_its_digest(path: Path) -> None:
    """Junk whose digest, which needs no secret, is right."""
    junk = b"\x7fELF" + bytes(5000)
    path.write_bytes(hashlib.sha256(junk).digest() + junk)


def empty_list_with_its_digest(path: Path) -> None:
    """A plan without subgraphs, whose digest, which needs no secret, is right."""
    path.write_bytes(hashlib.sha256(b"[]").digest() + b"[]")


def fifo(path: Path) -> None:
    """A reader would wait for a writer that never comes."""
    replaced_by(path, os.mkfifo)


def link_to_itself_elsewhere(path: Path) -> None:
    """The same content, in a folder of someone else's choice."""
    elsewhere = path.parent.parent / "elsewhere"
    shutil.copy(path, elsewhere)
    replaced_by(path, lambda at: at.symlink_to(elsewhere))


def link_to_a_device(path: Path) -> None:
    """Reading it never ends."""
    replaced_by(path, lambda at: at.symlink_to("/dev/zero"))


def folder(path: Path) -> None:
    """Nothing to read at all."""
    replaced_by(path, Path.mkdir)


def group_writes(path: Path) -> None:
    """Others of the group can change it."""
    path.chmod(0o620)


def all_write(path: Path) -> None:
    """Everyone can change it."""
    path.chmod(0o606)


ATTACKS: tuple[Attack, ...] = (
    edited,
    cut,
    emptied,
    enormous,
    junk_with_its_digest,
    empty_list_with_its_digest,
    fifo,
    link_to_itself_elsewhere,
    link_to_a_device,
    folder,
    group_writes,
    all_write,
)


def foreign_fstat(path: Path) -> Callable[[int], os.stat_result]:
    """An `os.fstat` that says that the file at the path, as it is now, belongs to someone else."""
    os.link(path, path.parent.parent / "kept")  # so that no new file gets its number
    planted, fstat = path.stat().st_ino, os.fstat

    def told(handle: int) -> os.stat_result:
        info = fstat(handle)
        return os.stat_result([*info[:4], info.st_uid + (info.st_ino == planted), *info[5:]])

    return told
