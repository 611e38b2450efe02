"""Scratch files: what is written comes back, checksums tell what is torn, and the folder goes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from brickrt.graph.errors import BrickError
from brickrt.runtime.files.identity import checksum
from brickrt.runtime.files.scratch import ScratchFolder, measured_speed, remove_scratch, scratch_path

SHAPE = 2, 3, 17, 9, 64


def folder_of(path, keep=False):
    return ScratchFolder(path, {"a": SHAPE, "b": (1, 1, 4, 4)}, keep)


def test_boxes_come_back(tmp_path):
    rng, draw = np.random.default_rng(0), random.Random(0)
    whole = np.zeros(SHAPE, np.uint8)
    folder = folder_of(tmp_path / "s")
    file = folder.files["a"]
    whole[:] = rng.integers(0, 256, SHAPE)
    for row in range(0, 17, 5):  # bands of rows, from memory that has gaps between them
        rows = np.zeros((2, 3, 8, 9, 64), np.uint8)
        count = min(5, 17 - row)
        rows[:, :, 2 : 2 + count] = whole[:, :, row : row + count]
        file.write((0, 0, row, 0, 0), rows[:, :, 2 : 2 + count])
    for _ in range(40):
        lo = [draw.randrange(extent) for extent in SHAPE]
        hi = [draw.randint(at + 1, extent) for at, extent in zip(lo, SHAPE, strict=True)]
        wanted = whole[tuple(map(slice, lo, hi))]
        found = np.zeros([2 * extent for extent in wanted.shape], np.uint8)[tuple(map(slice, wanted.shape))]
        file.read(tuple(lo), found)
        np.testing.assert_array_equal(found, wanted)
        assert file.checksum(tuple(lo), wanted.shape) == checksum(found) == checksum(wanted.copy())
    folder.remove()
    assert not list(tmp_path.iterdir())


def test_what_is_kept_is_there_for_the_next_run_only(tmp_path):
    folder = folder_of(tmp_path / "s")
    folder.files["b"].write((0, 0, 0, 0), np.full((1, 1, 4, 4), 7, np.uint8))
    told = folder.files["b"].checksum((0,) * 4, (1, 1, 4, 4))
    folder.close()
    again = folder_of(tmp_path / "s", keep=True)
    assert again.files["b"].checksum((0,) * 4, (1, 1, 4, 4)) == told
    with pytest.raises(BrickError, match="is cut off"):
        again.files["a"].checksum((0,) * 5, SHAPE)
    again.close()
    fresh = folder_of(tmp_path / "s")
    with pytest.raises(BrickError, match="is cut off"):
        fresh.files["b"].checksum((0,) * 4, (1, 1, 4, 4))
    fresh.remove()


def test_room_is_given_back(tmp_path):
    folder = folder_of(tmp_path / "s")
    file = folder.files["b"]
    file.write((0, 0, 0, 0), np.ones((1, 1, 4, 4), np.uint8))
    file.sync()
    file.release()
    assert sum(path.stat().st_size for path in (tmp_path / "s").iterdir()) == 0
    file.write((0, 0, 0, 0), np.ones((1, 1, 4, 4), np.uint8))  # a run that resumes may have to
    assert file.checksum((0,) * 4, (1, 1, 4, 4)) == checksum(np.ones(16, np.uint8))
    folder.remove()


def test_what_is_not_a_scratch_file_stays(tmp_path):
    folder = folder_of(tmp_path / "s")
    (tmp_path / "s" / "mine.txt").write_text("mine")
    folder.remove()
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["mine.txt"]
    remove_scratch(tmp_path / "absent")


def test_folders_that_are_refused(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        with pytest.raises(BrickError, match="is no folder of yours: remove it"):
            folder_of(tmp_path / name)
    with pytest.raises(BrickError, match=r"there is no folder .*absent: create it"):
        folder_of(tmp_path / "absent" / "s")
    (tmp_path / "there" / "0.rows").symlink_to(tmp_path / "file")
    with pytest.raises(BrickError, match=r"0\.rows: "):
        folder_of(tmp_path / "there", keep=True)
    assert (tmp_path / "file").stat().st_size == 0


def test_no_two_outputs_have_one_folder(tmp_path):
    beside = scratch_path(tmp_path / "y.npy")
    assert beside == tmp_path / "y.npy.brickrt-scratch" == scratch_path(f"{tmp_path}/y.npy::name")
    elsewhere = {scratch_path(tmp_path / folder / "y.npy", "/tmp") for folder in ("a", "b")}
    assert len(elsewhere) == 2 and all(str(path.parent) == "/tmp" for path in elsewhere)


def test_a_disk_is_measured_and_nothing_stays(tmp_path):
    assert all(1e5 < speed < 1e13 for speed in measured_speed(tmp_path))
    assert not list(tmp_path.iterdir())
    with pytest.raises(BrickError, match="absent"):
        measured_speed(tmp_path / "absent")
