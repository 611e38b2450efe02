"""Transfers that pass the system's cache by: the same bytes, for what lies on whole pages alone."""

from __future__ import annotations

import mmap
from errno import EINVAL, ENOSPC
from pathlib import Path

import numpy as np
import pytest

from brickrt.graph.errors import BrickError
from brickrt.runtime.files import descriptor
from brickrt.runtime.files.descriptor import Unbuffered
from brickrt.runtime.files.scratch import ScratchFolder

PAGE = mmap.PAGESIZE


def on_pages(*extents: int) -> np.ndarray:
    """Random bytes that begin with a page."""
    size = int(np.prod(extents))
    array = np.frombuffer(mmap.mmap(-1, size), np.uint8)
    array[:] = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    return array.reshape(extents)


@pytest.fixture
def file(tmp_path):
    """A file of 16 pages."""
    path = tmp_path / "file"
    path.write_bytes(bytes(16 * PAGE))
    found = Unbuffered(path)
    yield found
    found.close()


def supported(file: Unbuffered) -> None:
    if not file.read(on_pages(PAGE).data, 0):
        pytest.skip("the file system of temporary files has no unbuffered transfers")


def test_whole_pages_and_nothing_else(file):
    supported(file)
    data = on_pages(3 * PAGE)
    assert file.write(data.data, 4 * PAGE)
    read = on_pages(2 * PAGE)
    assert file.read(read.data, 5 * PAGE)
    np.testing.assert_array_equal(read, data[PAGE:])
    before = Path(file.name).read_bytes()
    assert not file.write(data[1 : PAGE + 1].data, 0)  # memory
    assert not file.write(data[:PAGE].data, 12)  # file
    assert not file.write(data[: PAGE - 8].data, 0)
    assert not file.write(data[:0].data, 0)
    assert not file.read(on_pages(2 * PAGE).data, 15 * PAGE)  # the file ends before
    assert Path(file.name).read_bytes() == before


def test_where_there_are_none(monkeypatch, file, tmp_path):
    """Neither a file system that refuses to open, nor one that refuses each transfer, is an error."""
    data = on_pages(PAGE)
    monkeypatch.setattr(descriptor.os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(EINVAL, "Invalid argument")))
    assert not file.write(data.data, 0)
    monkeypatch.undo()
    assert not file.write(data.data, 0) and not file.read(data.data, 0)
    other = Unbuffered(tmp_path / "absent")
    assert not other.write(data.data, 0)
    other.close()


def test_other_errors_are_told(monkeypatch, file):
    supported(file)
    monkeypatch.setattr(descriptor.os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(ENOSPC, "No space left")))
    with pytest.raises(BrickError, match="the disk is full"):
        file.write(on_pages(PAGE).data, 0)


@pytest.mark.parametrize("row", [PAGE, 2 * PAGE, PAGE + 32, 96])
def test_scratch_files_hold_the_same_bytes_either_way(tmp_path, row):
    """Rows of some extents are whole pages, those of others are not."""
    data = on_pages(3, 10, row)
    with ScratchFolder(tmp_path / "y", {"t": (3, 24, row)}, keep=False) as folder:
        file = folder.files["t"]
        file.write((0, 4, 0), data)
        file.sync()
        plain = np.fromfile(file.name, np.uint8)
        held = np.concatenate([plain, np.zeros(3 * 24 * row - len(plain), np.uint8)]).reshape(3, 24, row)
        np.testing.assert_array_equal(held[:, 4:14], data)
        read = on_pages(3, 7, row)
        file.read((0, 6, 0), read)
        np.testing.assert_array_equal(read, data[:, 2:9])
