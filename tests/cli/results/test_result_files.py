"""Results as files of every format of the registry."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from onnx import helper
from PIL import Image

from brickrt.cli.results.result_files import output_paths
from brickrt.runtime.files.formats.file_formats import FORMATS, READ_WHOLE, WRITTEN_WHOLE, listed
from tests.support.cli_models import same_model, save, value

ENDS = [(end, one) for one in FORMATS for end in one.suffixes]
RUN = ("run", "same.onnx", "--device", "reference", "--input")
LOSSY = {"JPEG": 0.02, "WebP": 0.02}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model that gives what it takes; the current folder."""
    monkeypatch.chdir(tmp_path)
    same_model(tmp_path / "same.onnx", (1, 3, "H", "W"))
    return tmp_path


@pytest.mark.parametrize(("end", "one"), ENDS, ids=[end for end, _ in ENDS])
def test_what_is_written_whole_is_read_whole(call, folder, end, one):
    steps = np.add.outer(np.arange(16), 2 * np.arange(17))
    want = (np.stack([steps, 60 + steps, 120 + steps])[None] / np.float32(255)).astype(np.float32)
    np.save("x.npy", want)
    written, file = call(*RUN, "x.npy", "--output", f"y{end}"), folder / f"y{end}"
    if one not in WRITTEN_WHOLE:
        assert (written.code, file.exists()) == (2, False) and f"is none of {listed(WRITTEN_WHOLE)}:" in written.err
        return
    assert written.code == 0, written.err
    read = call(*RUN, f"x=y{end}", "--output", "z.npy")
    if one not in READ_WHOLE:
        assert read.code == 2 and f"is none of {listed(READ_WHOLE)}: convert it" in read.err
        np.testing.assert_array_equal(np.fromfile(file, np.float32), want.ravel())
        return
    assert read.code == 0, read.err
    np.testing.assert_allclose(np.load("z.npy"), want, rtol=0, atol=LOSSY.get(one.name, 1e-6))


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_rasters_are_read_whole_as_they_are_band_by_band(call, folder):
    """They were read band by band alone: small ones were refused."""
    rasterio = pytest.importorskip("rasterio", reason="it reads these files")
    ends = [value(name, (1, 3, 6, 5)) for name in "xy"]
    save(folder / "relu.onnx", [helper.make_node("Relu", ["x"], ["y"])], ends[:1], ends[1:])
    want = np.arange(3 * 6 * 5, dtype=np.uint8).reshape(3, 6, 5)
    with rasterio.open("x.img", "w", driver="HFA", height=6, width=5, count=3, dtype=np.uint8) as raster:
        raster.write(want)
    for name, way in (("core", ()), ("bands", ("--max-memory", "64GiB"))):
        called = call("run", "relu.onnx", "--input", "x.img", "--output", f"{name}.npy", *way)
        assert called.code == 0, called.err
        np.testing.assert_array_equal(np.load(f"{name}.npy"), want[None])


@pytest.mark.parametrize("end", [".h5", ".hdf5", ".hdf"])
def test_results_in_a_folder_are_of_the_format_of_the_input(call, folder, end):
    with h5py.File(f"x{end}", "w") as file:
        file["data"] = np.ones((1, 3, 6, 5), np.float32)
    assert call(*RUN, f"x{end}", "--output", "out/").code == 0
    assert [path.name for path in Path("out").iterdir()] == [f"x{end}"]


def test_several_outputs_keep_the_end_of_the_name(call, folder):
    found = {name: output_paths(["a", "b/c"], Path(name)) for name in ("y.nii.gz", "o/y.ome.tif", "y.h5::data")}
    assert found == {
        "y.nii.gz": {"a": Path("y.a.nii.gz"), "b/c": Path("y.b_c.nii.gz")},
        "o/y.ome.tif": {"a": Path("o/y.ome.a.tif"), "b/c": Path("o/y.ome.b_c.tif")},
        "y.h5::data": {"a": Path("y.a.h5::data"), "b/c": Path("y.b_c.h5::data")},
    }


def test_names_of_pictures_say_what_they_are(call, folder):
    Image.fromarray(np.zeros((6, 5, 3), np.uint8)).save("x.png")
    for end, one in ENDS:
        if one.way == "picture":
            assert call(*RUN, "x.png", "--output", f"y{end}").code == 0
            assert Image.open(f"y{end}").format == one.name.upper()
