"""Digests of inputs change when these do."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pytest
import tifffile
import zarr

from brickrt.graph.errors import BrickError
from brickrt.runtime.files.identity import FilesRead
from brickrt.runtime.files.source import open_source
from brickrt.runtime.files.tensors import as_tensor
from tests.runtime.files.helpers import values

WRITERS = {
    "a.npy": np.save,
    "a.tif": lambda path, array: tifffile.imwrite(path, array, photometric="minisblack", tile=(16, 16)),
    "a.nii": lambda path, array: nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), path),
    "a.nii.gz": lambda path, array: nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), path),
    "a.zarr": lambda path, array: zarr.create_array(path, data=array, chunks=(1, 16, 16), overwrite=True),
    "a.h5": lambda path, array: h5py.File(path, "w").create_dataset("x", data=array, chunks=(1, 16, 16)).file.close(),
}


def identity(what):
    source = open_source(what)
    found = source.identity()
    assert found == source.identity() == as_tensor(source, (None,) * (len(source.shape) + 1), source.dtype).identity()
    source.close()
    return found


def set_time(path, time):
    for at, _, files in os.walk(path):
        for file in files:
            os.utime(os.path.join(at, file), ns=(time, time))
    os.utime(path, ns=(time, time))


@pytest.mark.parametrize("name", WRITERS)
def test_a_changed_file_is_another_one_and_a_moved_one_is_not(tmp_path, name):
    array = values((3, 40, 50), "f4")
    WRITERS[name](tmp_path / name, array)
    set_time(tmp_path / name, 10**18)
    first = identity(tmp_path / name)
    (tmp_path / "elsewhere").mkdir()
    moved = shutil.move(tmp_path / name, tmp_path / "elsewhere" / name)
    assert identity(moved) == first
    set_time(moved, 10**18 + 1)
    assert identity(moved) != first


@pytest.mark.parametrize("name", ["a.npy", "a.tif", "a.nii", "a.h5"])
def test_other_values_are_noticed_without_another_time(tmp_path, name):
    """Files of up to 128 KiB are covered in full."""
    array, found = values((3, 40, 50), "f4"), set()
    for place in (0, 1, 59, 3000, 5998, 5999):
        array.flat[place] += 1
        WRITERS[name](tmp_path / name, array)
        set_time(tmp_path / name, 10**18)
        found.add(identity(tmp_path / name))
    assert len(found) == 6


def test_a_chunk_that_was_added_or_written_again_is_noticed(tmp_path):
    made = zarr.create_array(tmp_path / "a.zarr", shape=(64, 64), dtype="f4", chunks=(16, 16))
    made[:16] = 1
    found = [identity(tmp_path / "a.zarr")]
    made[16:20] = 1
    found.append(identity(tmp_path / "a.zarr"))
    made[:16] = 2
    found.append(identity(tmp_path / "a.zarr"))
    made.attrs["spacing"] = 2
    found.append(identity(tmp_path / "a.zarr"))
    assert len(set(found)) == 4


def test_arrays_in_memory_are_covered_in_full():
    array = values((3, 40, 50), "f4")
    first = identity(array)
    assert identity(np.asfortranarray(array)) == first
    array[1, 20, 30] += 1
    assert identity(array) != first
    assert identity(array.astype("f8")) != identity(array) != identity(array.reshape(3, 50, 40))


def test_objects_are_sampled():
    class Held:
        def __init__(self, array):
            self.array, self.shape, self.dtype = array, array.shape, array.dtype

        def __getitem__(self, key):
            return self.array[key]

    array = values((3, 40, 50), "f4")
    first = identity(Held(array))
    array[-1, -1, -1] += 1
    assert identity(Held(array)) != first


def test_what_is_read_is_not_written_over_by_any_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.zarr" / "c").mkdir(parents=True)
    for name in ("x.h5", "other.npy", "a.zarr/zarr.json"):
        (tmp_path / name).touch()
    os.link("x.h5", "hard")
    os.symlink("x.h5", "soft")
    os.symlink("a.zarr", "b.zarr")
    read = FilesRead(["x.h5::y", Path("a.zarr/c"), "absent.npy", "s3://bucket/x.zarr", None])
    for name in ("x.h5", "./x.h5", "a.zarr/../x.h5", "hard", "soft", tmp_path / "x.h5", "a.zarr/c/0", "b.zarr/c"):
        with pytest.raises(BrickError, match=r"^--trace .*: is an input of this run: give another path$"):
            read.check("--trace", name)
    with pytest.raises(BrickError, match=r"b\.zarr: holds an input of this run"):
        read.check("--output", "b.zarr")
    for name in ("other.npy", "absent.npy", "x.h5.npy", "a.zarr/d", "a.zarr/zarr.json", "no/folder/y.npy"):
        read.check("--output", name)
