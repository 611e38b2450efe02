"""Records are whole or not there; a block of a run that has ended writes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from brickrt import BrickError
from brickrt.runtime.cluster.owned_rows import OwnedRows
from brickrt.runtime.cluster.record_folder import BlockRecord, RecordFolder, WrittenBox
from brickrt.runtime.files.tensors import as_file

RECORD = BlockRecord((WrittenBox("y", (0, 0, 4, 0), (1, 2, 3, 4), "abc", 4),), b"rows of sums", 96)


@pytest.fixture
def folder(tmp_path: Path) -> RecordFolder:
    folder = RecordFolder.beside(tmp_path / "y.zarr")
    folder.path.mkdir()
    folder.write_header({"run": "one"})
    return folder


def test_a_record_comes_back(folder: RecordFolder):
    folder.finish(3, RECORD)
    assert folder.record(3) == RECORD
    assert folder.record(4) is None


@pytest.mark.parametrize("at", range(0, 120, 7))
def test_a_damaged_record_is_none(folder: RecordFolder, at: int):
    folder.finish(3, RECORD)
    path = folder.path / "block-3"
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 1
    path.write_bytes(data)
    assert folder.record(3) is None
    path.write_bytes(path.read_bytes()[: at % len(data)])
    assert folder.record(3) is None


def test_a_block_of_an_ended_run_writes_nothing(folder: RecordFolder, tmp_path: Path):
    sink = as_file(tmp_path / "y.zarr", (1, 1, 4, 4), np.float32)
    rows = OwnedRows("y", sink, (0, 4), lambda: folder.check_run("one"))
    rows.write((0, 0, 0, 0), np.ones((1, 1, 2, 4), np.float32))
    folder.write_header({"run": "two"})
    with pytest.raises(BrickError, match="the run that this block is of has ended"):
        rows.write((0, 0, 2, 0), np.ones((1, 1, 2, 4), np.float32))
    folder.remove()
    with pytest.raises(BrickError, match="has ended"):
        rows.write((0, 0, 2, 0), np.ones((1, 1, 2, 4), np.float32))
    found = np.empty((1, 1, 4, 4), np.float32)
    sink.read((0, 0, 0, 0), found)
    assert found.sum() == 8


def test_only_owned_rows_are_written(tmp_path: Path):
    sink = as_file(tmp_path / "y.zarr", (1, 1, 8, 4), np.float32)
    rows = OwnedRows("y", sink, (3, 6), lambda: None)
    for row in range(0, 8, 2):
        rows.write((0, 0, row, 0), np.full((1, 1, 2, 4), row + 1, np.float32))
    found = np.empty((1, 1, 8, 4), np.float32)
    sink.read((0, 0, 0, 0), found)
    assert found[0, 0, :, 0].tolist() == [0, 0, 0, 3, 5, 5, 0, 0]
    assert [(box.lo[2], box.extents[2]) for box in rows.boxes] == [(3, 1), (4, 2)]


def test_a_journal_of_one_process_is_not_overwritten(tmp_path: Path):
    (tmp_path / "y.zarr.brickrt-journal").write_bytes(b"brickrt journal 1\n")
    with pytest.raises(BrickError, match="a run without a cluster was ended here"):
        RecordFolder.beside(tmp_path / "y.zarr")
