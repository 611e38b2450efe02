"""What files take of memory and of disks."""

from __future__ import annotations

import os
import resource
import signal
import tracemalloc

import h5py
import numpy as np
import pytest
import tifffile
import zarr

from brickrt.graph.errors import BrickError
from brickrt.runtime.files.descriptor import part_of
from brickrt.runtime.files.sink import create_sink
from brickrt.runtime.files.source import open_source
from brickrt.runtime.files.tensors import as_file, as_tensor
from tests.runtime.files.helpers import values

MIB = 1 << 20
SHAPE = (1, 4, 768, 1024)  # 12 MiB of float32


def source_npy(path):
    np.save(path / "a.npy", values(SHAPE, "f4"))
    return open_source(path / "a.npy")


def source_column_major(path):
    np.save(path / "a.npy", np.asfortranarray(values(SHAPE, "f4")))
    return open_source(path / "a.npy")


def source_zarr(path):
    zarr.create_array(path / "a.zarr", data=values(SHAPE, "f4"), chunks=(1, 1, 128, 256))
    return open_source(path / "a.zarr")


def source_zarr_of_small_chunks(path):
    zarr.create_array(path / "a.zarr", data=values(SHAPE, "f4"), chunks=(1, 1, 32, 128), compressors=None)
    return open_source(path / "a.zarr")


def source_tiff(path):
    tifffile.imwrite(
        path / "a.tif", values(SHAPE[1:], "f4"), photometric="minisblack", tile=(128, 128), compression="zlib"
    )
    return as_tensor(open_source(path / "a.tif"), SHAPE, "f4")


def source_plain_tiff(path):
    tifffile.imwrite(path / "a.tif", values((*SHAPE[2:], 4), "u2"), photometric="rgb")
    return as_tensor(open_source(path / "a.tif"), SHAPE, "f4", scale=1 / 65535)


def source_hdf5(path):
    with h5py.File(path / "a.h5", "w") as file:
        file.create_dataset(
            "x", data=values(SHAPE, "f4"), chunks=(1, 2, 64, 512), compression="gzip", compression_opts=1
        )
    return open_source(path / "a.h5")


SOURCES = [
    source_npy,
    source_column_major,
    source_zarr,
    source_zarr_of_small_chunks,
    source_tiff,
    source_plain_tiff,
    source_hdf5,
]


@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
def test_sources_hold_no_more_than_they_say(tmp_path, make):
    source, rows = make(tmp_path), 24
    out = np.zeros((1, 4, rows, 1024), np.float32)
    source.read((0, 0, 0, 0), out[:, :, :1])  # packages are loaded with the first read
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for begin in range(0, SHAPE[2], rows):
        source.read((0, 0, begin, 0), out)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert peak <= source.buffer_bytes + MIB // 4 <= 12 * MIB


@pytest.mark.parametrize("name", ["a.npy", "a.zarr", "a.tif", "a.h5"])
@pytest.mark.parametrize("stored", ["f4", "u1"])
def test_sinks_hold_no_more_than_they_say(tmp_path, name, stored):
    shape, rows = (1, 1, 512, 4096), 64
    sink = as_file(tmp_path / name, shape, "f4", stored=stored)
    band = np.random.default_rng(0).random((1, 1, rows, 4096), np.float32)
    sink.write((0, 0, 0, 0), band)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for begin in range(0, 512, rows):
        sink.write((0, 0, begin, 0), band)
        sink.sync()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    sink.close()
    assert peak <= sink.buffer_bytes + MIB // 4 <= 20 * MIB


def broken(monkeypatch, number, after):
    """Writes fail from the `after`-th on, after half of one was done."""
    pwrite, calls = os.pwrite, []

    def failing(fd, data, at):
        calls.append(at)
        if len(calls) == after:
            return pwrite(fd, data[: len(data) // 2], at)
        if len(calls) > after:
            raise OSError(number, os.strerror(number))
        return pwrite(fd, data, at)

    monkeypatch.setattr(os, "pwrite", failing)


@pytest.mark.parametrize("name", ["a.npy", "a.raw", "a.tif", "a.h5", "a.nii"])
@pytest.mark.parametrize(("number", "said"), [(28, "the disk is full: free space"), (5, "the disk failed")])
def test_a_full_or_broken_disk_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, name, number, said):
    sink = create_sink(tmp_path / name, (4, 64, 64), "f4", axis=1)
    broken(monkeypatch, number, 2)
    with pytest.raises(BrickError, match=rf"{name}.*: {said}"):
        sink.write((0, 0, 0), values((4, 64, 64), "f4"))
        sink.write((0, 0, 0), np.asfortranarray(values((4, 64, 64), "f4")))
    sink.abandon()
    assert not list(tmp_path.iterdir())


def test_a_full_disk_below_zarr_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    sink = create_sink(tmp_path / "a.zarr", (4, 64, 64), "f4", axis=1)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("zarr.storage._local._put", full)
    with pytest.raises(BrickError, match=r"a\.zarr: the disk is full: free space"):
        sink.write((0, 0, 0), values((4, 64, 64), "f4"))
    sink.abandon()
    assert not list(tmp_path.iterdir())


def test_a_limit_of_the_size_of_files_is_one_line(tmp_path):
    """The system's own error, in a child."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            create_sink(tmp_path / "a.npy", (100, 100), "f4", axis=0)
        except BrickError as e:
            os._exit(0 if "a.npy: a file may not grow as large: raise the limit" in str(e) else 2)
        finally:
            os._exit(3)
    assert os.waitpid(child, 0)[1] == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a.npy", "a.tif", "a.h5"])
def test_an_output_larger_than_the_disk_is_refused_at_once(tmp_path, monkeypatch, name):
    disk = os.statvfs_result((4096, 4096, 1000, 100, 100, 100, 100, 100, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: disk)
    with pytest.raises(BrickError, match=rf"{name}: takes 4.00 MiB, its disk has 400.00 KiB free: free space"):
        create_sink(tmp_path / name, (1, 1, 1024, 1024), "f4")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a.npy", "a.zarr", "a.tif", "a.h5", "a.nii"])
def test_an_output_takes_its_name_when_it_is_whole(tmp_path, name):
    old, new = values((16, 4, 4), "f4"), values((16, 4, 4), "f4", 1)
    for values_now in (old, new):
        sink = create_sink(tmp_path / name, old.shape, "f4")
        sink.write((0, 0, 0), values_now)
        if values_now is new:  # the old one is there as long as the new one is not
            found = np.zeros(old.shape, np.float32)
            open_source(tmp_path / name).read((0, 0, 0), found)
            np.testing.assert_array_equal(found, old)
        sink.close()
    open_source(tmp_path / name).read((0, 0, 0), found)
    np.testing.assert_array_equal(found, new)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a.npy", "a.zarr", "a.tif", "a.h5", "a.nii"])
def test_what_was_kept_is_gone_on_with(tmp_path, name):
    want = values((16, 4, 4), "f4")
    sink = create_sink(tmp_path / name, want.shape, "f4", resume=True)
    assert not sink.resumed  # there is nothing yet
    sink.write((0, 0, 0), want[:8])
    sink.abandon(keep=True)
    assert [path.name for path in tmp_path.iterdir()] == [part_of(tmp_path / name).name]
    with pytest.raises(BrickError, match="was begun with another shape"):
        create_sink(tmp_path / name, (4, 16, 4), "f4", resume=True)
    sink = create_sink(tmp_path / name, want.shape, "f4", resume=True)
    assert sink.resumed
    sink.write((8, 0, 0), want[8:])
    sink.close()
    found = np.zeros(want.shape, np.float32)
    open_source(tmp_path / name).read((0, 0, 0), found)
    np.testing.assert_array_equal(found, want)
    sink = create_sink(tmp_path / name, want.shape, "f4", resume=True)  # killed after it had finished the file
    assert sink.resumed
    sink.read((0, 0, 0), found)
    np.testing.assert_array_equal(found, want)
    sink.close()


@pytest.mark.parametrize("name", ["a.npy", "a.tif", "a.zarr"])
def test_folders_devices_and_missing_folders_are_refused(tmp_path, name):
    with pytest.raises(BrickError, match="there is no folder"):
        create_sink(tmp_path / "nowhere" / name, (4, 4, 4), "f4")
    os.mkfifo(tmp_path / name)
    with pytest.raises(BrickError, match=r"is a folder, device or pipe|is there and no Zarr array"):
        create_sink(tmp_path / name, (4, 4, 4), "f4")
    assert [path.name for path in tmp_path.iterdir()] == [name]
