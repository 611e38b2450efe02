"""`brickrt run` on many files, and from files of all kinds to files of all kinds."""

from __future__ import annotations

import os

import nibabel
import numpy as np
import pytest
import tifffile
import zarr
from onnx import helper
from PIL import Image

from brickrt.cli.commands.run_files import batch_size
from brickrt.cli.inputs.presets import PRESETS, Preprocessing
from brickrt.graph.onnx_import.source import load
from tests.support.cli_models import same_model, save, told, value

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 6, 5, 3), np.uint8)
AFFINE = np.array([[0.5, 0, 0, 3], [0, 0.5, 0, -2], [0, 0, 2, 7], [0, 0, 0, 1]])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three pictures and one that is damaged in `in`, and models for them; the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for k, pixels in enumerate(PIXELS):
        Image.fromarray(pixels).save(f"in/p{k}.png")
    same_model(tmp_path / "one.onnx", (1, 3, "H", "W"))
    same_model(tmp_path / "many.onnx", ("N", 3, 6, 5))
    same_model(tmp_path / "two.onnx", (2, 3, 6, 5))
    same_model(tmp_path / "volume.onnx", (1, 1, "X", "Y", "Z"))
    return tmp_path


RUN = ("--device", "reference", "--input")


@pytest.mark.parametrize(("model", "batch"), [("one", 1), ("many", 3), ("two", 2)])
def test_a_folder_to_a_folder(call, folder, model, batch):
    report = told(call("run", f"{model}.onnx", *RUN, "in", "--output", "out/", "--json"))
    assert report["batch"] == batch and len(report["files"]) == 3
    for k, pixels in enumerate(PIXELS):
        np.testing.assert_array_equal(np.asarray(Image.open(f"out/p{k}.png")), pixels)


def test_a_single_picture_fills_a_batch(call, folder):
    assert call("run", "two.onnx", *RUN, "in/p1.png", "--output", "y.png").code == 0
    np.testing.assert_array_equal(np.asarray(Image.open("y.png")), PIXELS[1])


def test_what_fails_is_a_line_and_the_rest_goes_on(call, folder):
    (folder / "in" / "p01.png").write_text("no picture")
    called = call("run", "many.onnx", *RUN, "in/*.png", "--output", "out/{}.png")
    assert called.code == 1 and "3 of 4 files in" in called.out and "written  out/p0.png, and 2 more" in called.out
    lines = called.err.splitlines()
    assert len(lines) == 2 and "in/p01.png: is no image" in lines[0] and "1 of 4 failed" in lines[1]
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["p0.png", "p1.png", "p2.png"]


def test_a_file_of_another_size_fails_alone(call, folder):
    Image.fromarray(PIXELS[0][:5]).save("in/small.png")
    called = call("run", "many.onnx", *RUN, "in", "--output", "out/", "--quiet")
    assert called.code == 1 and called.out == "" and "in/small.png: is 5x5" in called.err
    assert len(list((folder / "out").iterdir())) == 3


def test_files_of_other_kinds_are_counted(call, folder):
    for name in ("notes.txt", "data.csv", ".hidden.txt"):
        (folder / "in" / name).touch()
    called = call("run", "one.onnx", *RUN, "in", "--quiet")
    assert called.code == 0
    assert called.err == "brickrt: in: 2 files of other kinds are skipped, such as data.csv\n"


def test_names_that_clash_keep_their_ends(call, folder):
    Image.fromarray(PIXELS[2]).save("in/p0.bmp")
    assert call("run", "one.onnx", *RUN, "in", "--output", "out/").code == 0
    names = sorted(path.name for path in (folder / "out").iterdir())
    assert names == ["p0.bmp.png", "p0.png.png", "p1.png", "p2.png"]


def test_inputs_are_never_written_over(call, folder):
    called = call("run", "one.onnx", *RUN, "in", "--output", "in/")
    assert called.code == 1 and called.err.count("is an input of this run") == 3
    np.testing.assert_array_equal(np.asarray(Image.open("in/p0.png")), PIXELS[0])


def test_the_input_of_another_run_is_not_written_over_either(call, folder):
    (folder / "more").mkdir()
    os.rename("in/p0.png", "more/p0.png")
    os.symlink("more/p0.png", "p1.png")
    called = call("run", "one.onnx", *RUN, "in", "--input", "more", "--output", "{}.png")
    assert called.code == 1 and called.err.count("p1.png: is an input of this run") == 1
    np.testing.assert_array_equal(np.asarray(Image.open("more/p0.png")), PIXELS[0])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["in", "--output", "y.png"], "several inputs"),
        (["in", "--output", "out/", "--repeat", "2"], "--repeat is of one run"),
        (["in", "--output", "out/", "--verify"], "--verify is of one run"),
        (["in/p0.png", "--labels", "names.txt"], "--labels is of use with --top only"),
        (["in/p0.png", "--save", "mask"], "--save mask needs --output"),
        (["in/p0.png", "--json", "--quiet"], "--json and --quiet exclude each other"),
        (["in/p0.png", "--dashboard", "--quiet"], "--dashboard and --quiet exclude each other"),
        (["in/p0.png", "--as", "uint8"], "--as is of files"),
        (["in/p0.png", "--as", "uint8", "--output", "y.npz"], "--as is of files"),
        (
            ["in/p0.png", "--save", "overlay", "--max-memory", "1GiB", "--output", "y.png"],
            "--save overlay is of no use",
        ),
        (["in/p0.png", "--preset", "photo"], "--preset"),
        (["in/p0.png", "--output", "y.png", "--as", "int16"], "y.png: holds uint8 or uint16: leave out --as int16"),
        (["in/p0.png", "--output", "y.bmp", "--as", "float32"], "y.bmp: holds uint8: leave out --as float32"),
        (["in/p0.png", "--resize", "100000x100000"], "a picture resized to 100000x100000 (height x width) takes 139.7"),
        (["in/p0.png", "--top", "2", "--labels", "none.txt"], "--labels none.txt: cannot be read"),
        (["in/p0.png", "--output", ""], "--output is empty"),
        (["https://a.b/p0.png"], "https://a.b/p0.png: only Zarr is read from elsewhere"),
    ],
)
def test_refused_in_one_line(call, folder, words, said):
    called = call("run", "one.onnx", *RUN, *words)
    assert called.code == 2 and called.out == "" and said in called.err and len(called.err.splitlines()) == 1
    assert not (folder / "y.png").exists()


def test_axes_of_an_array_are_put_in_the_models_order(call, folder):
    np.save("flat.npy", PIXELS[0])
    np.save("whole.npy", np.ascontiguousarray(PIXELS[0].transpose(2, 0, 1)[None]))
    for name in ("flat", "whole"):
        called = call("run", "one.onnx", *RUN, f"{name}.npy", "--output", f"{name}.y.npy")
        assert called.code == 0, called.err
    np.testing.assert_array_equal(np.load("flat.y.npy"), np.load("whole.y.npy"))


def test_classes_of_a_folder(call, folder):
    """The means of the channels, as scores: red, green, blue."""
    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["p"]), helper.make_node("Flatten", ["p"], ["y"])]
    save(folder / "mean.onnx", nodes, [value("x", ("N", 3, 6, 5))], [value("y", ("N", 3))])
    (folder / "colours.txt").write_text("red\ngreen\nblue\n")
    called = call("run", "mean.onnx", *RUN, "in", "--top", "2", "--labels", "colours.txt")
    assert called.code == 0, called.err
    means = PIXELS.mean((1, 2)) / 255
    shares = np.exp(means) / np.exp(means).sum(1, keepdims=True)
    names = np.array(["red", "green", "blue"])
    lines = called.out.splitlines()
    for k in range(3):
        order = np.argsort(-shares[k])[:2]
        expected = [f"{shares[k][n]:7.1%}  {names[n]}" for n in order]
        assert lines[3 * k : 3 * k + 3] == [f"in/p{k}.png", *expected]
    assert call("run", "mean.onnx", *RUN, "in", "--output", "scores/", "--quiet").code == 0
    np.testing.assert_allclose(np.load("scores/p1.npy")[0], means[1], rtol=1e-5)
    alone = call("run", "mean.onnx", *RUN, "in/p0.png", "--top", "1", "--labels", "colours.txt").out
    assert alone.splitlines()[0] == lines[1]


def test_many_arrays_are_summed_up(call, folder):
    for k in range(2):
        np.save(f"in/a{k}.npy", np.full((1, 3, 6, 5), k, np.float32))
    called = call("run", "one.onnx", *RUN, "in/*.npy")
    assert called.code == 0 and "in/a0.npy" in called.out and "2 of 2 files" in called.out


def test_nifti_keeps_its_affine(call, folder):
    voxels = np.random.default_rng(0).integers(-1500, 1500, (4, 5, 6)).astype(np.int16)
    nibabel.save(nibabel.Nifti1Image(voxels, AFFINE), "ct.nii.gz")
    expected = np.clip((voxels + 1000) / 2000, 0, 1)
    for name in ("y.nii", "y.nii.gz", "out/"):
        assert call("run", "volume.onnx", *RUN, "ct.nii.gz", "--preset", "ct", "--output", name).code == 0
        made = nibabel.load("out/ct.nii.gz" if name == "out/" else name)
        np.testing.assert_allclose(made.affine, AFFINE)
        np.testing.assert_allclose(np.asarray(made.dataobj), expected, atol=1e-6)


def test_masks_of_volumes_and_pictures(call, folder):
    voxels = np.random.default_rng(0).normal(size=(4, 5, 6)).astype(np.float32)
    nibabel.save(nibabel.Nifti1Image(voxels, AFFINE), "v.nii")
    assert call("run", "volume.onnx", *RUN, "v.nii", "--save", "mask", "--output", "m.nii").code == 0
    made = np.asarray(nibabel.load("m.nii").dataobj)
    assert made.dtype == np.uint8 and np.array_equal(made, voxels > 0)
    for what, white in (("labels", 2), ("mask", 255)):
        assert call("run", "one.onnx", *RUN, "in/p0.png", "--save", what, "--output", "m.png").code == 0
        labels = PIXELS[0].argmax(2)
        expected = labels if what == "labels" else (labels > 0) * 255
        np.testing.assert_array_equal(np.asarray(Image.open("m.png")), expected)
        assert np.asarray(Image.open("m.png")).max() == white
    assert call("run", "one.onnx", *RUN, "in/p0.png", "--save", "overlay", "--output", "o.png").code == 0
    kept = PIXELS[0].argmax(2) == 0
    np.testing.assert_array_equal(np.asarray(Image.open("o.png"))[kept], PIXELS[0][kept])


@pytest.mark.parametrize("name", ["y.tif", "y.zarr", "y.npy", "y.npz", "y.png", "y.h5::y"])
def test_deep_pictures_in_and_out(call, folder, name):
    pixels = np.random.default_rng(0).integers(0, 65536, (6, 5, 3), np.uint16)
    tifffile.imwrite("deep.tif", pixels, photometric="rgb")
    called = call("run", "one.onnx", *RUN, "deep.tif", "--output", name)
    assert called.code == 0, called.err
    values = (pixels / 65535).transpose(2, 0, 1)[None]
    readers = {"y.tif": lambda: tifffile.imread(name).transpose(2, 0, 1)[None], "y.npy": lambda: np.load(name)}
    readers |= {"y.zarr": lambda: zarr.open(name, mode="r")[:], "y.npz": lambda: np.load(name)["y"]}
    if name in readers:
        np.testing.assert_allclose(readers[name](), values, atol=1e-6)
    elif name == "y.png":
        np.testing.assert_array_equal(np.asarray(Image.open(name)), np.rint(pixels / 257).astype(np.uint8))


def test_sixteen_bits_through(call, folder):
    pixels = np.random.default_rng(0).integers(0, 65536, (6, 5), np.uint16)
    Image.fromarray(pixels).save("deep.png")
    same_model(folder / "grey.onnx", (1, 1, "H", "W"))
    assert call("run", "grey.onnx", *RUN, "deep.png", "--as", "uint16", "--output", "y.png").code == 0
    np.testing.assert_array_equal(np.asarray(Image.open("y.png")), pixels)
    assert call("run", "one.onnx", *RUN, "deep.png", "--output", "grey.png").code == 0
    assert np.asarray(Image.open("grey.png")).shape == (6, 5, 3)
    assert call("run", "grey.onnx", *RUN, "deep.png", "--resize", "3x4", "--output", "s.png").code == 0
    assert np.asarray(Image.open("s.png")).shape == (3, 4)


def test_files_that_are_read_box_by_box_are_resized_too(call, folder):
    tifffile.imwrite("a.tif", np.full((30, 40, 3), 255, np.uint8), photometric="rgb")
    assert call("run", "many.onnx", *RUN, "a.tif", "--resize", "6x5", "--output", "y.npy").code == 0
    np.testing.assert_allclose(np.load("y.npy"), np.ones((1, 3, 6, 5)), atol=1e-6)


@pytest.mark.parametrize(
    ("dims", "preset", "count", "batch"),
    [
        (("N", 3, 224, 224), None, 10, 5),
        (("N", 3, 224, 224), None, 3, 3),
        (("N", 3, "H", "W"), None, 10, 1),
        (("N", 3, "H", "W"), "imagenet", 16, 8),
        ((4, 3, 8, 8), None, 1, 4),
        (("N", 3, 2048, 2048), None, 10, 1),
    ],
)
def test_batches_are_even(tmp_path, dims, preset, count, batch):
    source = load(same_model(tmp_path / "m.onnx", dims))
    assert batch_size(source, PRESETS[preset] if preset else Preprocessing(), count) == batch


def test_options_for_images_need_an_image_in_the_folder(call, models, tmp_path):
    arrays = tmp_path / "arrays"
    arrays.mkdir()
    for k in range(2):
        np.save(arrays / f"{k}.npy", np.zeros((1, 3, 8, 8), np.float32))
    called = call("run", models / "conv.onnx", "--input", arrays, "--resize", "8x8")
    line = f"brickrt: --resize is of use with images only: {arrays} holds arrays only: leave it out\n"
    assert called.code == 2 and called.err == line
