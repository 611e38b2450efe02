"""Every format of the registry, by what it says that can be done with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from brickrt.graph.errors import BrickError, InputError
from brickrt.runtime.files.arrangement import as_pages, as_volume
from brickrt.runtime.files.formats.file_formats import (
    FORMATS,
    READ_BY_BOX,
    WRITTEN_BY_BOX,
    format_of,
    listed,
    stem_of,
)
from brickrt.runtime.files.sink import create_sink
from brickrt.runtime.files.source import open_source
from tests.runtime.files.helpers import check_reads, check_writes, values

DOCUMENT = Path(__file__).parents[4] / "docs" / "files.md"
ENDS = [(end, one) for one in FORMATS for end in one.suffixes]
IMPORTS = """
import sys
import brickrt.runtime.files.sink, brickrt.runtime.files.source
print(*{"PIL", "h5py", "nibabel", "rasterio", "tifffile", "zarr"} & sys.modules.keys())
"""


@pytest.mark.parametrize(("end", "one"), ENDS, ids=[end for end, _ in ENDS])
def test_what_is_written_by_box_is_read_by_box(tmp_path, end, one):
    path, want = tmp_path / f"a{end.upper()}", values((3, 17, 21), np.float32)
    assert format_of(path) is one and stem_of(path) == "a"
    if one not in WRITTEN_BY_BOX:
        with pytest.raises(BrickError) as refused:
            create_sink(path, want.shape, want.dtype)
        said = one.instead or f"is none of {listed(WRITTEN_BY_BOX)}: give another name"
        assert str(refused.value) == f"{path}: {said}"
        return
    check_writes(create_sink(path, want.shape, want.dtype, axis=1), want, (2, 5, 21))
    source = open_source(path, **({} if one.described else {"shape": want.shape, "dtype": want.dtype}))
    check_reads(source, want)
    source.close()


@pytest.mark.parametrize("end", [end for end, one in ENDS if one not in READ_BY_BOX])
def test_what_is_read_whole_alone_is_refused_by_box(tmp_path, end):
    (tmp_path / f"a{end}").touch()
    with pytest.raises(InputError, match=r"is none of \.npy, \.png, .*: convert it"):
        open_source(tmp_path / f"a{end}")


def test_the_document_names_every_end():
    said = DOCUMENT.read_text("utf-8")
    assert [end for end, _ in ENDS if f"`{end}`" not in said] == []


def test_no_name_has_two_formats():
    ends = [end for end, _ in ENDS]
    assert not [(a, b) for a in ends for b in ends if a != b and a.endswith(b)]


def test_packages_of_formats_are_imported_once_they_are_used():
    ran = subprocess.run([sys.executable, "-c", IMPORTS], check=True, capture_output=True, text=True)
    assert ran.stdout == "\n"


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("a/b.ome.tif", ".tif"),
        ("a/b.h5::c/d", ".h5"),
        ("a/b.zarr/c", ".zarr"),
        ("a.zarr/b.png", ".zarr"),
        ("a/b.nii.gz", ".nii.gz"),
        ("a/b.npy::c", None),
        ("a/b.zarr::c", None),
        ("a/b.gz", None),
        ("a/b", None),
        ("Zarr array [3, 4] float32", None),
    ],
)
def test_which_format_a_name_says(name, end):
    found = format_of(name)
    assert (found.suffixes[0] if found else None) == end


@pytest.mark.parametrize("name", ["a.npy::b", "a.tif::b", "a.zarr::b"])
def test_a_name_inside_is_of_formats_that_hold_several(tmp_path, name):
    (tmp_path / name.partition("::")[0]).mkdir()
    with pytest.raises(InputError, match=f"{name}: is none of"):
        open_source(tmp_path / name)
    with pytest.raises(BrickError, match=f"{name}: is none of"):
        create_sink(tmp_path / name, (4, 4), "f4", axis=0)


@pytest.mark.parametrize(
    ("shape", "volume", "pages"),
    [
        ((5, 6), (5, 6), (5, 6)),
        ((1, 1, 5, 6), (5, 6), (5, 6)),
        ((1, 4, 5, 6), (5, 6, 4), (5, 6, 4)),
        ((1, 5, 6, 7), (6, 7, 5), (5, 6, 7)),
        ((2, 3, 5, 6), (2, 3, 5, 6), (2, 3, 5, 6)),
        ((1, 1, 4, 5, 6), (4, 5, 6), (4, 5, 6)),
        ((1, 2, 4, 5, 6), (4, 5, 6, 2), (2, 4, 5, 6)),
    ],
)
def test_how_outputs_lie(shape, volume, pages):
    assert as_volume(shape).file_shape(shape) == volume and as_pages(shape).file_shape(shape) == pages
