"""Flat arrays: `.npy`, raw files, and the layouts below other formats."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.graph.errors import BrickError, InputError
from brickrt.runtime.files import boxes
from brickrt.runtime.files.formats import flat
from brickrt.runtime.files.sink import create_sink
from brickrt.runtime.files.source import open_source
from tests.runtime.files.helpers import check_reads, check_writes, values


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["u1", "<f4", ">i2", "f8"])
@pytest.mark.parametrize("shape", [(5,), (7, 9), (1, 3, 11, 13), (2, 3, 5, 4, 6)])
def test_npy_files_are_read(tmp_path, shape, dtype, order):
    want = np.asarray(values(shape, dtype), order=order)
    np.save(tmp_path / "a.npy", want)
    check_reads(open_source(tmp_path / "a.npy"), want)


@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
    order=st.sampled_from("CF"),
    piece_bytes=st.sampled_from([16, 64, 1 << 20]),
    run_apart=st.sampled_from([1, 1 << 14]),
)
@settings(max_examples=60, deadline=None)
def test_boxes_are_the_same_however_they_are_cut(tmp_path_factory, shape, order, piece_bytes, run_apart):
    """Limits of a few bytes make small arrays take the ways of large ones."""
    path = tmp_path_factory.mktemp("flat") / "a.npy"
    want = np.asarray(values(shape, "<u4"), order=order)
    np.save(path, want)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flat, "PIECE_BYTES", piece_bytes)
        patch.setattr(flat, "_RUN_APART", run_apart)
        source = open_source(path)
        check_reads(source, want, times=6)
        source.close()
        check_writes(create_sink(path, shape, "<u4", axis=0), want, tuple(max(1, extent // 2) for extent in shape))
    np.testing.assert_array_equal(np.load(path), want)


@pytest.mark.parametrize("shape", [(6,), (3, 40), (1, 3, 17, 19), (1, 2, 5, 7, 9)])
@pytest.mark.parametrize("dtype", ["u1", "f4", "f2", "i8"])
@pytest.mark.parametrize("suffix", ["npy", "raw"])
def test_what_is_written_in_any_order_is_read(tmp_path, shape, dtype, suffix):
    path, want = tmp_path / f"a.{suffix}", values(shape, dtype)
    check_writes(create_sink(path, shape, dtype, axis=0), want, (3,) * len(shape))
    given_shape = {"shape": shape, "dtype": dtype} if suffix == "raw" else {}
    check_reads(open_source(path, **given_shape), want)
    if suffix == "npy":
        np.testing.assert_array_equal(np.load(path), want)


def test_bfloat16_is_read_where_the_type_is_given(tmp_path):
    want = values((4, 5), ml_dtypes.bfloat16)
    np.save(tmp_path / "a.npy", want)
    source = open_source(tmp_path / "a.npy", dtype=ml_dtypes.bfloat16)
    out = np.zeros((4, 5), ml_dtypes.bfloat16)
    source.read((0, 0), out)
    np.testing.assert_array_equal(out, want)
    with pytest.raises(InputError, match=r"a\.npy: holds 2 bytes an element without a type: give the type"):
        open_source(tmp_path / "a.npy")


def test_reads_and_writes_that_the_system_cuts_short_go_on(tmp_path, monkeypatch):
    preadv, pwrite, want = (
        flat.read_at.__globals__["os"].preadv,
        flat.read_at.__globals__["os"].pwrite,
        values((9, 9), "f4"),
    )
    monkeypatch.setattr("os.preadv", lambda fd, views, at: preadv(fd, [views[0][:7]], at))
    monkeypatch.setattr("os.pwrite", lambda fd, data, at: pwrite(fd, data[:5], at))
    check_writes(create_sink(tmp_path / "a.npy", (9, 9), "f4", axis=0), want, (4, 9))
    check_reads(open_source(tmp_path / "a.npy"), want)


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, values((100, 10), "f4"))
    source = open_source(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(InputError, match=r"a\.npy: has 2000 bytes, \[100, 10\] of float32 take 4128: write it again"):
        open_source(path)
    with pytest.raises(InputError, match=r"a\.npy: is cut off at 2000 bytes: copy or write it again"):
        source.read((0, 0), np.zeros((100, 10), np.float32))


def test_a_box_outside_and_another_type_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", values((4, 5), "f4"))
    source = open_source(tmp_path / "a.npy")
    with pytest.raises(InputError, match=r"has the shape \[4, 5\]: there is no box \[2, 5\] at \[3, 0\] in it"):
        source.read((3, 0), np.zeros((2, 5), np.float32))
    with pytest.raises(InputError, match="holds float32, the array is float64"):
        source.read((0, 0), np.zeros((2, 5)))
    with pytest.raises(InputError, match="no box"):
        source.read((0, -1), np.zeros((2, 5), np.float32))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (np.zeros((3, 0)), r"has the shape \[3, 0\], which holds no rows"),
        (np.zeros(()), r"has the shape \[\], which holds no rows"),
        (np.zeros(3, [("a", "f4")]), "are no numbers|without a type"),
        (np.array(["a"]), "holds <U1, which are no numbers"),
    ],
)
def test_arrays_that_cannot_be_streamed_are_refused(tmp_path, made, said):
    np.save(tmp_path / "a.npy", made)
    with pytest.raises(InputError, match=said):
        open_source(tmp_path / "a.npy")


def test_no_npy_file_is_refused(tmp_path):
    (tmp_path / "a.npy").write_bytes(b"something else")
    with pytest.raises(InputError, match=r"a\.npy: is damaged or no \.npy file"):
        open_source(tmp_path / "a.npy")


def test_raw_files_need_shape_and_type(tmp_path):
    (tmp_path / "a.raw").write_bytes(bytes(100))
    with pytest.raises(InputError, match="raw files do not say what they hold: give shape and dtype"):
        open_source(tmp_path / "a.raw")
    with pytest.raises(BrickError, match=r"has 100 bytes, \[30\] of float32 take 120"):
        open_source(tmp_path / "a.raw", shape=(30,), dtype="f4")


@given(shape=st.lists(st.integers(1, 12), min_size=1, max_size=4).map(tuple), most=st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_pieces_cover_a_box_in_row_major_order(shape, most):
    want = np.arange(np.prod(shape)).reshape(shape)
    found = [want[boxes.slices(offset, extents)] for offset, extents in boxes.pieces(shape, 1, most)]
    assert all(piece.size <= most for piece in found)
    assert np.concatenate([piece.reshape(-1) for piece in found]).tolist() == want.reshape(-1).tolist()
