"""NIfTI volumes as nibabel writes and reads them."""

from __future__ import annotations

import gzip

import nibabel
import numpy as np
import pytest

from brickrt.graph.errors import BrickError, InputError
from brickrt.runtime.files.formats import relaid
from brickrt.runtime.files.sink import create_sink
from brickrt.runtime.files.source import by_rows, open_source
from brickrt.runtime.files.tensors import as_tensor
from tests.runtime.files.helpers import check_reads, check_writes, values

AFFINE = np.array([[0, 2, 0, 5], [-1, 0, 0, 6], [0, 0, 3, 7], [0, 0, 0, 1.0]])


def saved(path, want, kind=nibabel.Nifti1Image):
    image = kind(want, AFFINE)
    image.header.set_xyzt_units("mm", "sec")
    nibabel.save(image, path)
    return path


@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
@pytest.mark.parametrize("suffix", ["nii", "nii.gz"])
@pytest.mark.parametrize(("shape", "dtype"), [((7, 8, 9), "<i2"), ((7, 8, 9), ">f4"), ((5, 6, 7, 3), "u1")])
def test_volumes_are_read(tmp_path, shape, dtype, suffix, kind):
    want = values(shape, dtype)
    source = open_source(saved(tmp_path / f"a.{suffix}", want, kind))
    check_reads(source, want)
    source.close()


def test_scaled_volumes_are_read_as_floats(tmp_path):
    image = nibabel.Nifti1Image(values((7, 8, 9), "i2").astype(np.float32) / 7, AFFINE)
    image.header.set_data_dtype(np.int16)
    nibabel.save(image, tmp_path / "a.nii")
    want = nibabel.load(tmp_path / "a.nii")
    assert want.header.get_slope_inter()[0] != 1
    check_reads(open_source(tmp_path / "a.nii"), want.get_fdata().astype(np.float32))


def test_a_scratch_file_is_made_where_it_is_wanted_and_has_no_name(tmp_path):
    path = saved(tmp_path / "a.nii.gz", values((7, 8, 9), "u2"))
    (tmp_path / "scratch").mkdir()
    source = open_source(path, scratch=tmp_path / "scratch")
    assert not list((tmp_path / "scratch").iterdir())
    check_reads(source, values((7, 8, 9), "u2"))
    with pytest.raises(BrickError, match=r"scratch file of .*a\.nii\.gz: .*check the path"):
        open_source(path, scratch=tmp_path / "nowhere")


def test_damaged_volumes_are_refused(tmp_path):
    path = saved(tmp_path / "a.nii.gz", values((7, 8, 9), "u2"))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"a\.nii\.gz: is damaged .*copy or write it again"):
        open_source(path)
    path.write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"a\.nii\.gz: is damaged"):
        open_source(path)
    path.write_bytes(gzip.compress(bytes(1000)))
    with pytest.raises(InputError, match=r"a\.nii\.gz: is damaged or no NIfTI file"):
        open_source(path)
    (tmp_path / "b.nii").write_bytes(saved(tmp_path / "c.nii", values((7, 8, 9), "u2")).read_bytes()[:600])
    with pytest.raises(InputError, match=r"b\.nii: has 600 bytes, \[7, 8, 9\] of uint16 take"):
        open_source(tmp_path / "b.nii")


@pytest.mark.parametrize("shape", [(7, 8, 9), (5, 6, 7, 2), (3, 40000, 2)])
@pytest.mark.parametrize("copied", [False, True])
def test_volumes_are_written_with_the_affine_of_the_input(tmp_path, shape, copied):
    """What is read from a row-major copy has it too."""
    like = open_source(saved(tmp_path / "in.nii", values((7, 8, 9), "i2")))
    like.axis = 0
    like = by_rows(like) if copied else like
    assert isinstance(like, relaid.RelaidSource) == copied
    want = values(shape, "f4")
    check_writes(
        create_sink(tmp_path / "out.nii", shape, "f4", axis=0, like=like),
        want,
        (3, max(shape) // 2, 2, 1)[: len(shape)],
    )
    found = nibabel.load(tmp_path / "out.nii")
    assert isinstance(found, nibabel.Nifti2Image if max(shape) > 32767 else nibabel.Nifti1Image)
    np.testing.assert_array_equal(np.asarray(found.dataobj), want)
    np.testing.assert_array_equal(found.affine, AFFINE)
    assert found.header.get_xyzt_units() == ("mm", "sec")


def test_rows_that_are_scattered_are_read_from_a_copy(tmp_path, monkeypatch):
    """A sweep along x, which is innermost: without a copy each band would read the file from end to end."""
    monkeypatch.setattr(relaid, "_COPIED_AT_A_TIME", 2000)
    want = values((17, 18, 19), "i2")
    source = open_source(saved(tmp_path / "a.nii", want))
    identity = source.identity()
    (tmp_path / "scratch").mkdir()
    copied = by_rows(source, scratch=tmp_path / "scratch")
    assert copied.identity() == identity and copied.axis == 0 and copied.chunks == (1, 1, 19)
    check_reads(copied, want)
    assert not list((tmp_path / "scratch").iterdir())
    source.axis = 2
    assert by_rows(source) is source
    copied.close()


def test_a_tensor_of_scattered_rows_is_read_from_a_copy(tmp_path):
    want = values((17, 18, 19), "i2")
    tensor = as_tensor(open_source(saved(tmp_path / "a.nii", want)), (1, 1, None, None, None), "f4")
    tensor.copy_if_scattered(tmp_path)
    assert isinstance(tensor.source, relaid.RelaidSource) and tensor.source.axis == 0
    check_reads(tensor, want[None, None].astype(np.float32))


def test_rows_wait_for_the_end_where_they_are_scattered(tmp_path, monkeypatch):
    monkeypatch.setattr(relaid, "_COPIED_AT_A_TIME", 2000)
    want = values((17, 18, 19), "f4")
    sink = create_sink(tmp_path / "a.nii", want.shape, "f4", axis=0)
    sink.write((0, 0, 0), want[:9])
    sink.abandon(keep=True)
    sink = create_sink(tmp_path / "a.nii", want.shape, "f4", axis=0, resume=True)
    assert sink.resumed
    sink.write((9, 0, 0), want[9:])
    with monkeypatch.context() as patch:
        patch.setattr(relaid, "copy_boxes", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sink.close()
    assert [path.name for path in tmp_path.iterdir()] == [".a.nii.rows.brickrt-part"]  # nothing is lost
    sink.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a.nii"]
    np.testing.assert_array_equal(np.asarray(nibabel.load(tmp_path / "a.nii").dataobj), want)
    sink = create_sink(
        tmp_path / "a.nii", want.shape, "f4", axis=0, resume=True
    )  # killed after it had finished the file
    assert sink.resumed
    found = np.zeros(want.shape, np.float32)
    sink.read((0, 0, 0), found)
    np.testing.assert_array_equal(found, want)
    sink.close()


def test_what_nifti_cannot_be_written_as_is_refused(tmp_path):
    with pytest.raises(BrickError, match=r"packed files can only be written from end to end: write \.nii"):
        create_sink(tmp_path / "a.nii.gz", (4, 4, 4), "f4")
    with pytest.raises(BrickError, match=r"NIfTI cannot hold \[4, 4, 4\] of float16"):
        create_sink(tmp_path / "a.nii", (4, 4, 4), "f2")
