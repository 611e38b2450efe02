"""Zarr, HDF5, and objects of Python with slices."""

from __future__ import annotations

import signal
import sys

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.graph.errors import BrickError, InputError
from brickrt.runtime.files.formats import chunked, zarr_arrays
from brickrt.runtime.files.formats.chunked import ChunkReader
from brickrt.runtime.files.formats.sliced import SlicedChunks, SlicedSource
from brickrt.runtime.files.sink import create_sink
from brickrt.runtime.files.source import open_source
from tests.runtime.files.helpers import check_reads, check_writes, swept, values
from tests.support.programs import forks


@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=4),
    group=st.sampled_from([1, 40, 1000]),
)
@settings(max_examples=50, deadline=None)
def test_chunks_are_put_together(sizes, group):
    shape, chunks = tuple(size for size, _ in sizes), tuple(chunk for _, chunk in sizes)
    want = values(shape, "u4")

    class Chunks(chunked.ChunkedSource):
        def load(self, lo, extents):
            assert all(a % c == 0 for a, c in zip(lo, self.chunks))
            return want[tuple(slice(a, a + e) for a, e in zip(lo, extents))].copy()

        def identity(self):
            return "chunks"

    check_reads(Chunks("chunks", shape, want.dtype, chunks, group), want)


def test_each_chunk_of_a_sweep_is_loaded_once_and_one_row_is_kept():
    """Bands of 3 rows over chunks of 8 rows: without keeping them, chunks would be loaded three times."""
    want, loaded = values((1, 2, 40, 30), "f4"), []

    def load(lo, extents):
        loaded.append(lo)
        return want[tuple(slice(a, a + e) for a, e in zip(lo, extents))].copy()

    reader = ChunkReader(want.shape, want.dtype, (1, 1, 8, 7), load, 1)
    out = np.zeros((1, 2, 3, 30), np.float32)
    for begin in range(0, 39, 3):
        reader.read((0, 0, begin, 0), out)
        np.testing.assert_array_equal(out, want[:, :, begin : begin + 3])
        assert sum(chunk.nbytes for chunk in reader._kept.values()) <= reader.row_bytes == 2 * 8 * 30 * 4
    assert len(loaded) == len(set(loaded)) == 2 * 5 * 5


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("extra", [{}, {"compressors": None}, {"shards": (1, 2, 8, 10)}])
def test_zarr_arrays_are_read(tmp_path, version, extra):
    if version == 2 and "shards" in extra:
        return  # version 2 has none
    want = values((1, 3, 23, 17), "u2")
    made = zarr.create_array(tmp_path / "a.zarr", data=want, chunks=(1, 1, 4, 5), zarr_format=version, **extra)
    check_reads(open_source(tmp_path / "a.zarr"), want)
    check_reads(open_source(made), want)
    source = open_source(tmp_path / "a.zarr")
    assert source.chunks == (1, 1, 4, 5)


def test_arrays_in_groups_are_found(tmp_path):
    group = zarr.create_group(tmp_path / "g.zarr")
    first = values((4, 6), "f4")
    group.create_array("first", data=first)
    check_reads(open_source(tmp_path / "g.zarr"), first)
    group.create_array("second", data=first + 1)
    check_reads(open_source(tmp_path / "g.zarr" / "second"), first + 1)
    with pytest.raises(InputError, match=r"is a group with 'first', 'second': name one, as .*g\.zarr/first"):
        open_source(tmp_path / "g.zarr")


@pytest.mark.parametrize("version", [2, 3])
def test_ome_zarr_is_read_in_full_size(tmp_path, version):
    image = {"multiscales": [{"datasets": [{"path": "full"}, {"path": "half"}]}]}
    attributes = image if version == 2 else {"ome": image}
    group = zarr.create_group(tmp_path / "i.ome.zarr", zarr_format=version, attributes=attributes)
    want = values((1, 2, 8, 6), "u1")
    group.create_array("full", data=want)
    group.create_array("half", data=want[:, :, ::2, ::2])
    check_reads(open_source(tmp_path / "i.ome.zarr"), want)


def test_what_is_no_zarr_array_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"a\.zarr: no such file: check the path"):
        open_source(tmp_path / "a.zarr")
    (tmp_path / "a.zarr").mkdir()
    with pytest.raises(InputError, match=r"a\.zarr: is damaged or no Zarr array"):
        open_source(tmp_path / "a.zarr")


def test_a_damaged_chunk_is_named(tmp_path):
    zarr.create_array(tmp_path / "a.zarr", data=values((8, 8), "f4"), chunks=(4, 4))
    chunk = tmp_path / "a.zarr" / "c" / "1" / "0"
    chunk.write_bytes(chunk.read_bytes()[:10])
    with pytest.raises(InputError, match=r"a\.zarr: a chunk at \[4, 0\] cannot be read"):
        swept(open_source(tmp_path / "a.zarr"), 4)


@pytest.mark.parametrize(("name", "piece"), [("a.zarr", (1, 3, 5, 7)), ("a.ome.zarr", (1, 1, 64, 4096))])
def test_zarr_arrays_are_written(tmp_path, name, piece):
    want = values((1, 3, 70, 90), "f4")
    want[:, 1] = 0
    chunks = (1, 1, 16, 32)
    sink = create_sink(tmp_path / name, want.shape, "f4", chunks=chunks)
    assert sink.row_unit == 16 and not (tmp_path / name).exists()
    check_writes(sink, want, tuple(map(min, piece, want.shape)))
    check_reads(open_source(tmp_path / name), want)
    array = tmp_path / name / ("0" if "ome" in name else "")
    assert len([file for file in (array / "c").rglob("*") if file.is_file()]) == 3 * 5 * 3  # those of zeros too
    assert {path.name for path in tmp_path.iterdir()} == {name}


def test_groups_of_chunks_are_written_together(tmp_path, monkeypatch):
    monkeypatch.setattr(zarr_arrays, "GROUP_BYTES", 5000)
    want = values((1, 2, 33, 100), "f4")
    check_writes(create_sink(tmp_path / "a.zarr", want.shape, "f4", chunks=(1, 1, 16, 16)), want, (1, 2, 16, 100))
    check_reads(open_source(tmp_path / "a.zarr"), want)


def test_ome_metadata_names_the_axes(tmp_path):
    create_sink(tmp_path / "v.ome.zarr", (1, 2, 4, 8, 8), "u1").close()
    ome = zarr.open_group(tmp_path / "v.ome.zarr", mode="r").attrs["ome"]
    assert [axis["name"] for axis in ome["multiscales"][0]["axes"]] == ["t", "c", "z", "y", "x"]
    with pytest.raises(BrickError, match="OME-Zarr images have 2 to 5 axes, this has 6"):
        create_sink(tmp_path / "w.ome.zarr", (1, 1, 2, 2, 2, 2), "u1")


def test_a_zarr_array_takes_the_place_of_one_but_of_nothing_else(tmp_path):
    zarr.create_array(tmp_path / "a.zarr", data=np.ones((4, 4)))
    sink = create_sink(tmp_path / "a.zarr", (2, 3), "f4", axis=0)
    sink.write((0, 0), np.full((2, 3), 5, np.float32))
    sink.close()
    assert zarr.open_array(tmp_path / "a.zarr", mode="r")[...].tolist() == [[5, 5, 5]] * 2
    (tmp_path / "b.zarr").mkdir()
    (tmp_path / "b.zarr" / "thesis.tex").write_text("years of work")
    with pytest.raises(BrickError, match=r"b\.zarr: is there and no Zarr array"):
        create_sink(tmp_path / "b.zarr", (2, 3), "f4", axis=0)
    assert (tmp_path / "b.zarr" / "thesis.tex").exists()


@pytest.mark.parametrize("extra", [{}, {"chunks": (2, 5, 4)}, {"chunks": (3, 4, 9), "compression": "gzip"}])
@pytest.mark.parametrize("userblock", [0, 1024])
def test_hdf5_datasets_are_read(tmp_path, extra, userblock):
    want = values((7, 11, 9), ">f4")
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=userblock) as file:
        made = file.create_dataset("group/data", data=want, **extra)
        check_reads(open_source(made), want)
    check_reads(open_source(tmp_path / "a.h5"), want)
    check_reads(open_source(f"{tmp_path}/a.h5::group/data"), want)
    with pytest.raises(
        InputError, match=r"a\.h5: holds no 'other', but 'group/data': name one, as .*a\.h5::group/data"
    ):
        open_source(f"{tmp_path}/a.h5::other")


def test_no_hdf5_file_is_refused(tmp_path):
    (tmp_path / "a.h5").write_bytes(b"something else")
    with pytest.raises(InputError, match=r"a\.h5: is damaged or no HDF5 file"):
        open_source(tmp_path / "a.h5")


@pytest.mark.parametrize("shape", [(3,), (40, 50), (1, 3, 17, 19)])
@pytest.mark.parametrize("inside", ["", "::deep/inside"])
def test_hdf5_files_are_written(tmp_path, shape, inside):
    want = values(shape, "f8")
    check_writes(create_sink(f"{tmp_path}/a.h5{inside}", shape, "f8", axis=0), want, (4,) * len(shape))
    with h5py.File(tmp_path / "a.h5", "r") as file:
        np.testing.assert_array_equal(file[inside[2:] or "data"][...], want)
    check_reads(open_source(tmp_path / "a.h5"), want)
    assert [path.name for path in tmp_path.iterdir()] == ["a.h5"]


class SlicesOnly:
    """Has what is asked for, and says how much that was."""

    def __init__(self, array, chunks=None):
        self.array, self.shape, self.dtype, self.asked = array, array.shape, array.dtype, []
        if chunks:
            self.chunks = chunks

    def __getitem__(self, key):
        self.asked.append(self.array[key].size)
        return self.array[key]


def test_objects_with_slices_are_read():
    want = values((2, 3, 19, 21), "i4")
    check_reads(open_source(want), want)
    check_reads(open_source(np.asfortranarray(want)), want)
    plain, cut = SlicesOnly(want), SlicesOnly(want, ((1, 1), (3,), (8, 8, 3), (21,)))
    assert isinstance(open_source(plain), SlicedSource)
    check_reads(open_source(plain), want)
    source = open_source(cut)
    assert isinstance(source, SlicedChunks) and source.chunks == (1, 3, 8, 21)
    check_reads(source, want)
    assert isinstance(
        open_source(SlicesOnly(want, ((1, 1), (3,), (3, 8, 8), (21,)))), SlicedSource
    )  # not all of one size


def test_little_is_asked_for_at_a_time():
    big = SlicesOnly(np.broadcast_to(np.float32(3), (1, 4, 600, 500)))
    out = np.zeros((1, 4, 600, 500), np.float32)
    open_source(big).read((0, 0, 0, 0), out)
    assert (out == 3).all() and max(big.asked) * 4 <= 1 << 20 and len(big.asked) > 4


def test_objects_without_slices_are_refused():
    with pytest.raises(InputError, match="list: has no shape, dtype and slices: give a path or an array"):
        open_source([1, 2])
    with pytest.raises(InputError, match=r"gives \[1\] for a box \[4, 5\]: its slices must be like NumPy's"):

        class Liar(SlicesOnly):
            def __getitem__(self, key):
                return np.zeros(1)

        open_source(Liar(np.zeros((4, 5)))).read((0, 0), np.zeros((4, 5)))


@pytest.mark.parametrize(
    ("package", "file", "extra"),
    [
        ("zarr", "a.zarr", "files"),
        ("tifffile", "a.tif", "files"),
        ("nibabel", "a.nii", "files"),
        ("h5py", "a.h5", "files"),
        ("rasterio", "a.vrt", "geo"),
    ],
)
def test_a_missing_package_is_named_with_the_extra(tmp_path, monkeypatch, package, file, extra):
    (tmp_path / file).touch()
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("brickrt.runtime.files.extras.find_spec", lambda name: None if name == package else ...)
    line = rf'{file}: needs the package {package}: pip install "brickrt\[{extra}\]"'
    with pytest.raises(BrickError, match=line):
        open_source(tmp_path / file)
    if package not in ("tifffile", "rasterio"):
        with pytest.raises(BrickError, match=line):
            create_sink(tmp_path / file, (4, 4, 4), "f4")


def test_names_without_a_known_suffix_are_refused(tmp_path):
    (tmp_path / "a.what").touch()
    with pytest.raises(InputError, match=r"a\.what: is none of \.npy, \.png, .*: convert it"):
        open_source(tmp_path / "a.what")
    with pytest.raises(
        BrickError, match=r"a\.jpg: pictures are written by runs in memory: give a name that ends in \.tif"
    ):
        create_sink(tmp_path / "a.jpg", (4, 4, 4), "f4")
    with pytest.raises(BrickError, match=r"s3://a/b\.zarr: stores elsewhere are for reading only"):
        create_sink("s3://a/b.zarr", (4, 4, 4), "f4")
    with pytest.raises(InputError, match=r"b\.tif: no such file"):
        open_source(tmp_path / "b.tif")


def test_a_type_or_shape_that_the_file_lacks_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3, 4), np.float32))
    with pytest.raises(InputError, match="holds float32, not float64"):
        open_source(tmp_path / "a.npy", dtype="f8")
    with pytest.raises(InputError, match=r"has the shape \[3, 4\], not \[4, 3\]"):
        open_source(tmp_path / "a.npy", shape=(4, 3))


KILLED = """
import os, signal, sys
import numpy as np
from brickrt.runtime.files.sink import create_sink

sink = create_sink(sys.argv[1], (4, 4, 8), "f4", axis=0, chunks=(2, 4, 8))
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
sink.write((0, 0, 0), np.ones((2, 4, 8), np.float32))
"""


def test_nothing_is_left_of_a_chunk_that_was_written_when_a_run_was_killed(tmp_path):
    path, want = tmp_path / "a.zarr", values((4, 4, 8), np.float32)
    assert forks.run(["-c", KILLED, path]).returncode == -signal.SIGKILL
    assert list(tmp_path.rglob("*.partial"))
    sink = create_sink(path, want.shape, "f4", axis=0, resume=True, chunks=(2, 4, 8))
    sink.write((0, 0, 0), want)
    sink.close()
    check_reads(open_source(path), want)
    whole = tmp_path / "b.zarr"
    check_writes(create_sink(whole, want.shape, "f4", axis=0, chunks=(2, 4, 8)), want, (4, 4, 8))
    names = [sorted(file.relative_to(folder) for file in folder.rglob("*")) for folder in (path, whole)]
    assert names[0] == names[1]
