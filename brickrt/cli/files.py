"""Writing files so that they are there whole or not at all."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import IO, TextIO

from brickrt.graph.errors import BrickError

_unfinished: set[str] = set()


def remove_unfinished() -> None:
    """Removes files that are half written. Called where the process ends at once, without unwinding the stack."""
    for path in tuple(_unfinished):
        with suppress(OSError):
            os.unlink(path)


def check_files(files: Mapping[str, Path], model: Path) -> None:
    """Refuses, before any work is done, files by option that could not be written, or of which two, or one and the
    model, are one file."""
    if len(set(map(os.path.realpath, files.values()))) < len(files):
        raise BrickError(f"{' and '.join(files)} name the same file: give each its own")
    from brickrt.runtime.files.identity import FilesRead  # here: help needs no NumPy

    read = FilesRead([model])
    for option, path in files.items():
        check_writable(path)
        read.check(option, path, "the model itself")


def check_writable(path: Path) -> None:
    """Refuses, before any work is done, a path that could not be written in the end."""
    folder = _target(path).parent
    if not folder.is_dir():
        raise BrickError(f"{path}: there is no folder {folder}: create it, or give another path")
    if not os.access(folder, os.W_OK | os.X_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise BrickError(f"{path}: cannot be written: check the permissions, or give another path")


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Calls `write` with a file that takes the place of `path` once all of it is written."""
    target, temporary = _target(path), None
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        _unfinished.add(temporary)
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.chmod(temporary, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        os.replace(temporary, target)
    except OSError as e:
        _remove(temporary)
        raise BrickError(f"{path}: {_why(e)}") from e
    except BaseException:
        _remove(temporary)
        raise
    finally:
        _unfinished.discard(temporary or "")


def _why(error: OSError) -> str:
    """What NumPy could not write it counts, and gives no number of an error."""
    if error.errno in (ENOSPC, EDQUOT):
        return "the disk is full: free space, or give another path"
    if error.errno is None and " requested and " in str(error):
        return "the disk is full: free space (or files may not be that large), or give another path"
    return f"cannot be written ({error.strerror or error}): give another path"


def write_text(path: Path, write: Callable[[TextIO], object]) -> None:
    """Does what `write_whole` does for text, as UTF-8."""

    def encoded(file: IO[bytes]) -> None:
        text = io.TextIOWrapper(file, "utf-8", newline="\n")
        write(text)
        text.detach()  # flushes, and leaves the file open

    write_whole(path, encoded)


def _target(path: Path) -> Path:
    """The file that a path stands for, links followed. Raises BrickError for what is there and no file: a new file
    would take its place."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise BrickError(f"{path}: is a folder: give a file's name")
    if target.exists() and not target.is_file():
        raise BrickError(f"{path}: is a device or a pipe: give a file's name")
    return target


def _remove(path: str | None) -> None:
    if path is not None:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _umask() -> int:
    """The process's mask for new files; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
