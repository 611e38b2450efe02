"""Blended windows: as NumPy has them, whatever the sizes; and what is refused, kept and told."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import brickrt
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import load
from brickrt.plan.options import PlanOptions
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.program_protocol import Cancelled
from brickrt.runtime.stream.stream_report import StreamOptions
from brickrt.runtime.windows.decision import Decision
from brickrt.runtime.windows.window_job import opened_windows
from brickrt.runtime.windows.window_options import window_options
from tests.runtime.windows.helpers import blended, image, layers

PLENTY = 2**36
FLAT = [  # extents, window, overlap
    ((37, 53), (16, 16), 0.5),
    ((37, 53), (16, 24), 0.25),
    ((32, 48), (16, 16), 0.0),
    ((33, 16), (16, 16), 0.7),
    ((19, 80), (32, 32), 0.5),  # fewer rows than the window
    ((9, 11), (16, 16), 0.9),
]
VOLUMES = [((11, 17, 13), (8, 8, 8), 0.5), ((7, 20, 16), (8, 16, 12), 0.25)]


def in_core(model: bytes):
    runtime = brickrt.Runtime(model, device="cpu", threads=2)
    return lambda given: runtime.execute({"x": given})["y"]


def found(model: bytes, given: np.ndarray, out, window, overlap, blend, **options) -> np.ndarray:
    runtime = brickrt.Runtime(model, device="cpu", threads=2)
    asked = {"max_memory": PLENTY, "window": window, "overlap": overlap, "blend": blend}
    report = runtime.stream(given, out, **asked, **options)
    assert report.bytes_written == np.load(out).nbytes and report.windows == report.all_windows
    return np.load(out)


@pytest.mark.parametrize("blend", ["gaussian", "constant"])
@pytest.mark.parametrize(("extents", "window", "overlap"), FLAT + VOLUMES, ids=str)
def test_as_numpy_has_it(extents, window, overlap, blend, tmp_path):
    model, given = layers(len(extents)), image(*extents)
    wanted = blended(given, in_core(model), window, overlap, blend)
    made = found(model, given, tmp_path / "y.npy", window, overlap, blend)
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)
    assert made.shape == (1, 3, *extents)


@pytest.mark.parametrize("blend", ["gaussian", "constant"])
@pytest.mark.parametrize(
    ("extents", "window", "shape"),
    [
        ((37, 53), (16, 16), "up"),
        ((36, 52), (16, 16), "down"),
        ((12, 18, 14), (8, 8, 8), "down"),
        ((9, 30), (16, 16), "up"),
    ],
)
def test_outputs_of_another_size(extents, window, shape, blend, tmp_path):
    model, given = layers(len(extents), **{shape: True}), image(*extents)
    wanted = blended(given, in_core(model), window, 0.5, blend)
    made = found(model, given, tmp_path / "y.npy", window, 0.5, blend)
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)
    assert made.shape[2:] == tuple(n * 2 if shape == "up" else n // 2 for n in extents)


def test_images_of_a_batch_and_windows_side_by_side(tmp_path):
    """The network takes three windows at a time, of 16 by 16 alone; the last ones are fewer."""
    model, given = layers(batch=3, edge=16), image(37, 53, images=2)
    alone = in_core(layers())
    wanted = np.concatenate([blended(one[None], alone, (16, 16), 0.5, "gaussian") for one in given])
    made = found(model, given, tmp_path / "y.npy", 16, 0.5, "gaussian")
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


def test_where_nothing_is_said_half_overlaps_in_a_gaussian(tmp_path):
    given = image(30, 30)
    plain = found(layers(), given, tmp_path / "a.npy", 16, None, None)
    np.testing.assert_array_equal(plain, found(layers(), given, tmp_path / "b.npy", (16, 16), 0.5, "gaussian"))
    stored = found(layers(), given, tmp_path / "c.npy", 16, None, None, stored="uint8", scale=40)
    np.testing.assert_array_equal(stored, np.clip(np.rint(plain * np.float32(40)), 0, 255))


def job(model: bytes, given: np.ndarray, decision: Decision = Decision(), watch=None, **options):  # noqa: B008
    pipeline = Pipeline(choose_engine("cpu"), PlanOptions(), 2)
    asked = StreamOptions(**{"max_memory": PLENTY, **options})
    return opened_windows(pipeline, load(model), given, window_options(16), asked, decision, watch=watch)


@pytest.mark.parametrize("decision", [Decision(argmax=1), Decision(threshold=0.1)], ids=str)
def test_decisions_are_made_of_blended_values(decision, tmp_path):
    given = image(37, 53)
    values = blended(given, in_core(layers()), (16, 16), 0.5, "gaussian")
    with job(layers(), given, decision) as one:
        one.run({"y": tmp_path / "y.npy"})
    made = np.load(tmp_path / "y.npy")
    wanted = values.argmax(1)[:, None] if decision.argmax else values > decision.threshold
    assert made.dtype == np.uint8 and made.shape == wanted.shape
    assert np.mean(made == wanted) > 0.999


@pytest.mark.parametrize(  # each pair of them
    ("images", "name", "decision"),
    [
        (1, "y.npy", Decision()),
        (1, "y.zarr", Decision(argmax=1)),
        (2, "y.npy", Decision(argmax=1)),
        (2, "y.zarr", Decision()),
    ],
    ids=str,
)
def test_a_run_that_was_ended_goes_on_to_the_same_bytes(images, name, decision, tmp_path):
    pytest.importorskip("zarr")
    given, out = image(70, 40, images=images), {"y": tmp_path / name}
    with job(layers(), given, decision) as one:
        whole = one.run({"y": tmp_path / f"whole{name}"})
    stop = whole.all_windows - 6
    with job(layers(), given, decision, watch=lambda told: told.bands == stop and one.cancel()) as one:
        with pytest.raises(Cancelled):
            one.run(out)
        assert 0 < one.finished < stop
    with job(layers(), given, decision, resume=True) as one:
        report = one.run(out)
    assert 6 < report.windows < report.all_windows == one.finished
    same = [folder.rglob("*") if name == "y.zarr" else [folder] for folder in (out["y"], tmp_path / f"whole{name}")]
    first, second = ([path.read_bytes() for path in sorted(paths) if path.is_file()] for paths in same)
    assert first == second and first


def test_another_window_is_not_gone_on_with(tmp_path):
    given, out = image(70, 40), {"y": tmp_path / "y.npy"}
    with job(layers(), given, watch=lambda told: told.bands == 20 and one.cancel()) as one, pytest.raises(Cancelled):
        one.run(out)
    runtime = brickrt.Runtime(layers(), device="cpu", threads=2)
    with pytest.raises(BrickError, match="the window is another one than when this run was begun"):
        runtime.stream(given, out, window=16, overlap=0.25, resume=True)


def test_progress_counts_rows_windows_and_bytes(tmp_path):
    told = []
    with job(layers(), image(70, 40), watch=told.append) as one:
        report = one.run({"y": tmp_path / "y.npy"})
    assert [one.bands for one in told] == list(range(1, report.all_windows + 1))
    assert told[-1].rows == told[-1].all_rows == 70 and told[-1].left_s == 0
    assert told[-1].bytes_read == report.bytes_read == image(70, 40).nbytes  # each row is read once


@pytest.mark.parametrize(
    ("model", "options", "refused"),
    [
        ({}, {"window": 0}, "window [0] is impossible: give whole numbers above 0"),
        ({}, {"window": 16, "overlap": 1.0}, "overlap 1.0 is impossible: give a share from 0 to below 1"),
        ({}, {"window": 16, "overlap": -0.1}, "overlap -0.1 is impossible"),
        ({}, {"window": 16, "blend": "flat"}, "blend 'flat' is none of gaussian, constant"),
        ({}, {"window": (16, 16, 16)}, "window 16x16x16: the network's input has 2 axes to cut: give 1 number, or 2"),
        ({}, {"overlap": 0.5}, "overlap and blend are of blended windows: give a window too"),
        ({"edge": 16}, {"window": 32}, "windows of 32x32: the network takes 16x16: give that as the window"),
        ({"down": True}, {"window": 15}, "windows of 16x16 would do"),
        ({"down": True}, {"window": 16, "overlap": 0.3}, "a window begins at 11: give another overlap"),
        ({"down": True}, {"window": 128}, "77 are not cut into windows so: pad the image to a multiple"),
        ({}, {"window": 16, "max_memory": 2**20}, "1 MiB of memory are not enough for windows of 16x16"),
    ],
)
def test_refused_in_one_line(model, options, refused, tmp_path):
    runtime = brickrt.Runtime(layers(**model), device="cpu", threads=2)
    with pytest.raises(BrickError, match=re.escape(refused)) as error:
        runtime.stream(image(76, 77), tmp_path / "y.npy", **{"max_memory": PLENTY, **options})
    assert "\n" not in str(error.value) and not list(tmp_path.iterdir())


def test_each_output_has_a_file(tmp_path):
    with (
        job(layers(), image(40, 40)) as one,
        pytest.raises(BrickError, match="the model's outputs are y: give a file for each"),
    ):
        one.run({"z": tmp_path / "z.npy"})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("decision", "refused"),
    [
        (Decision(argmax=2), "classes of blended windows are along axis 1"),
        (Decision(threshold=float("nan")), "is no number"),
    ],
)
def test_decisions_that_make_no_sense(decision, refused, tmp_path):
    with pytest.raises(BrickError, match=refused), job(layers(), image(20, 20), decision):
        pass


@pytest.mark.parametrize("name", ["y.npy", "y.zarr"])
def test_measured_is_at_most_projected_is_at_most_the_limit(name, tmp_path):
    """In a process of its own, which compiles its kernels."""
    (tmp_path / "m.onnx").write_bytes(layers(classes=8))
    np.save(tmp_path / "x.npy", image(700, 900))
    env = os.environ | {"BRICKRT_CALIBRATE": "0", "BRICKRT_CACHE_DIR": str(tmp_path / "cache")}
    words = f"run m.onnx --input x.npy --output {name} --window 192 --max-memory 1GiB --json".split()
    call = [sys.executable, "-m", "brickrt", *words]
    done = subprocess.run(call, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert told["peak_bytes"] <= told["projected_bytes"] <= told["limit_bytes"] == 2**30


@pytest.mark.parametrize("name", ["y.zarr", "y.ome.zarr", "y.h5", "y.tif", "y.ome.tif", "y.nii"])
def test_the_file_says_that_it_is_not_exact(name, tmp_path):
    remark = "blended windows of 16, overlap 0.5: not the exact result"
    runtime = brickrt.Runtime(layers(classes=1), device="cpu", threads=2)
    report = runtime.stream(image(30, 40), tmp_path / name, max_memory=PLENTY, window=16)
    assert report.remark == report.to_dict()["result"] == remark
    assert said(tmp_path / name).startswith(remark)


def said(path) -> str:
    """The remark in a file, as its own package reads it."""
    if path.suffix == ".zarr":
        zarr = pytest.importorskip("zarr")
        return zarr.open_array(path / "0" if ".ome" in path.name else path, mode="r").attrs["description"]
    if path.suffix == ".h5":
        with pytest.importorskip("h5py").File(path) as file:
            return file["data"].attrs["description"]
    if path.suffix == ".nii":
        return pytest.importorskip("nibabel").load(path).header["descrip"].item().decode()
    with pytest.importorskip("tifffile").TiffFile(path) as file:
        if ".ome" in path.name:
            return re.search("<Description>(.*)</Description>", file.ome_metadata)[1]
        return file.shaped_metadata[0]["description"]
