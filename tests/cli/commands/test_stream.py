"""`brickrt run` and `brickrt plan` in bounded memory."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import tifffile
import zarr

from brickrt.cli.commands import stream
from brickrt.cli.inputs import large_files
from brickrt.graph.errors import BrickError
from brickrt.plan.stream.choose_bands import MIB
from brickrt.runtime.files.journal import journal_path
from brickrt.runtime.memory_amount import memory_amount
from brickrt.runtime.stream import spill_planning
from brickrt.runtime.stream.stream_planning import RESIDENT_STEP_BYTES
from tests.runtime.stream.helpers import pixels, pools, two_layers
from tests.support.cli_models import told
from tests.support.graphs.attention import attention_network
from tests.support.programs import forks


@pytest.fixture
def files(tmp_path, monkeypatch):
    """m.onnx and x.npy in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes(two_layers())
    np.save("x.npy", pixels())
    return tmp_path


BANDS = ("--max-memory", "64GiB")
RUN = ("run", "m.onnx", "--input", "x.npy", "--output")


@pytest.mark.parametrize(
    ("text", "size"),
    [("1GiB", 2**30), ("700MiB", 700 * 2**20), ("2G", 2**31), ("1e9", 10**9), ("1.5 gb", 15 * 10**8), ("64k", 2**16)],
)
def test_sizes(text, size):
    assert memory_amount("--max-memory", text) == size


@pytest.mark.parametrize("text", ["", "much", "-1GiB", "0", "1QiB", "1e30", "nan", "GiB"])
def test_what_is_no_size(text):
    with pytest.raises(BrickError, match="is no amount of memory: write it as --max-memory 1GiB"):
        memory_amount("--max-memory", text)


def test_as_in_core(call, files):
    """The same values; the figures in words and as JSON."""
    assert call(*RUN, "core.npy").code == 0
    called = call(*RUN, "y.npy", "--max-memory", "64GiB")
    assert called.code == 0 and called.err == "", called.err
    np.testing.assert_allclose(np.load("y.npy"), np.load("core.npy"), rtol=1e-5, atol=1e-5)
    for word in ("passes   1", "projected, 64.0 GiB allowed", "measured", "bands", "strips", "written  y.npy"):
        assert word in called.out
    report = told(call(*RUN, "z.npy", "--max-memory", "64G", "--json", "--hard"))
    assert report["limit_bytes"] == 2**36 and report["bands_run"] == report["bands"] and report["rows"] == 64
    assert sum(report["memory"].values()) == report["projected_bytes"]
    assert report["outputs"] == {"y": "z.npy"} and report["bytes_written"] == np.load("y.npy").nbytes
    assert np.array_equal(np.load("z.npy"), np.load("y.npy"))


def test_work_that_grows_with_the_square_is_told(call, files):
    """The plan prints the arithmetic of attention, and JSON has it."""
    (files / "m.onnx").write_bytes(attention_network("non-local", (64, 64)).SerializeToString())
    asked = ("plan", "m.onnx", *BANDS)
    told_text = re.search(r"work +(\S+) of (\S+) GFLOP in 1 attention, over up to 4,096 positions", call(*asked).out)
    planned = told(call(*asked, "--json"))
    assert told_text and planned["attention"][0]["positions"] == 4096
    assert 2 * 2 * 8 * 4096**2 < planned["attention"][0]["flops"] < planned["flops"]


@pytest.mark.parametrize("how", [(), BANDS], ids=["in core", "in bands"])
def test_types_and_last_steps(call, files, how):
    assert call(*RUN, "y.npy", *BANDS).code == 0
    values = np.load("y.npy")
    assert call(*RUN, "u.npy", "--as", "uint8:50", *how).code == 0
    np.testing.assert_allclose(np.load("u.npy"), np.clip(np.rint(values * np.float32(50)), 0, 255), atol=1)
    for option in ("--argmax", "1"), ("--save", "labels"):
        assert call(*RUN, "a.npy", *option, *how).code == 0
        assert np.load("a.npy").dtype == np.uint8 and np.mean(np.load("a.npy") == values.argmax(1)[:, None]) > 0.999
    assert call(*RUN, "t.npy", "--threshold", "0.5", *how).code == 0
    assert np.mean(np.load("t.npy") == (values > 0.5)) > 0.999


def test_presets_go_band_by_band(call, files):
    np.save("x.npy", 2000 * pixels())
    np.save("within.npy", np.clip((2000 * pixels() + 1000) / 2000, 0, 1).astype(np.float32))
    assert call(*RUN, "y.npy", *BANDS, "--preset", "ct").code == 0
    assert call("run", "m.onnx", "--input", "within.npy", "--output", "z.npy", *BANDS).code == 0
    np.testing.assert_allclose(np.load("y.npy"), np.load("z.npy"), atol=1e-4)


def test_what_memory_does_not_hold_goes_band_by_band(call, files, monkeypatch):
    """Whatever the format, where the network may."""
    tifffile.imwrite("x.tif", np.zeros((64, 64, 3), np.uint8), photometric="rgb")
    monkeypatch.setattr(large_files, "LARGE_FILE_BYTES", 100)
    monkeypatch.setattr(stream, "available_bytes", lambda: 1000)
    words = ("run", "m.onnx", "--output", "y.zarr", "--json")
    assert "bands" in told(call(*words, "--input", "x.tif"))
    assert "bands" not in told(call(*words, "--input", "x.tif", "--preset", "imagenet", "--resize", "64x64"))


def test_tiff_in_zarr_out_needs_no_option(call, files):
    """TIFF files of whole numbers are images: 0 to 1, as those of .png files are."""
    tifffile, zarr = pytest.importorskip("tifffile"), pytest.importorskip("zarr")
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    tifffile.imwrite("x.tif", image)
    np.save("scaled.npy", (image.astype(np.float32) / 255).transpose(2, 0, 1)[None])
    assert call("run", "m.onnx", "--input", "scaled.npy", "--output", "y.npy").code == 0
    called = call("run", "m.onnx", "--input", "x=x.tif", "--output", "y.zarr")
    assert called.code == 0, called.err
    np.testing.assert_allclose(zarr.open("y.zarr", mode="r")[:], np.load("y.npy"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (["y.npy", "--max-memory", "1MiB"], "1 MiB of memory are not enough: the least that would do is"),
        (["y.npy", "--max-memory", "lots"], "--max-memory 'lots' is no amount of memory"),
        (["y.npy", "--as", "uint9"], "--as 'uint9' is impossible"),
        (["y.npy", "--argmax", "7"], "--argmax 7: the output 'y' has the axes 0 to 3"),
        (["y.npy", "--argmax", "1", "--threshold", "0"], "--argmax and --threshold exclude each other"),
        (["y.npz", "--max-memory", "64GiB"], "y.npz: is none of .npy"),
        (["y.npy", "--scratch", "absent"], "absent: there is no such folder for scratch: create it"),
        (["y.zarr", *BANDS, "--verify"], "--verify is of no use in a run band by band"),
        (["y.zarr", *BANDS, "--repeat", "3"], "--repeat is of no use in a run band by band"),
        (["y.zarr", *BANDS, "--device", "reference"], "--device reference runs nothing band by band: use cpu"),
        (["m.onnx", "--max-memory", "64GiB"], "--output m.onnx: is the model itself"),
        (["y.zarr", *BANDS, "--trace", "t.json"], "--trace is of no use in a run band by band"),
        (["y.npy", "--max-memory", "64GiB", "--report", "no/r.html"], "no/r.html: there is no folder"),
        (["y.npy", "--overlap", "0.5"], "--overlap is of use with --window only: add --window 256"),
        (["y.npy", "--window", "64", "--overlap", "1"], "overlap 1.0 is impossible: give a share from 0 to below 1"),
        (["y.npy", "--window", "wide"], "--window 'wide' is impossible: write it as --window 256, or 96x96x96"),
        (["y.npy", "--window", "64", "--blend", "flat"], "--blend 'flat' is impossible: use one of gaussian, constant"),
        (["y.npy", "--window", "32"], "windows of 32x32: the network takes 64x64: give that as the window"),
        (["y.npy", "--window", "64", "--max-memory", "9MiB"], "9 MiB of memory are not enough for windows of 64x64"),
        (["y.npy", *BANDS, "--top", "5"], "--top is of no use in a run band by band"),
        (["y.npy", *BANDS, "--save", "overlay"], "--save overlay is of no use in a run band by band"),
        (["y.npy", *BANDS, "--preset", "imagenet"], "--preset imagenet resizes images"),
        (["y.npy", *BANDS, "--input", "x.npy*"], "x.npy: is given twice"),
    ],
)
def test_refused_in_one_line(call, files, words, refused):
    called = call(*RUN, *words)
    assert called.code == 2 and called.out == "" and refused in called.err, called.err
    assert len(called.err.splitlines()) == 1
    assert sorted(path.name for path in files.iterdir()) == ["m.onnx", "x.npy"]


def test_blended_windows_of_a_larger_image(call, files):
    """The model takes images of 64 by 64 alone."""
    np.save("x.npy", pixels(100)[..., :80])
    words = ("--window", "64", "--overlap", "0.25", "--blend", "constant")
    called = call(*RUN, "y.zarr", "--max-memory", "64GiB", *words)
    assert called.code == 0, called.err
    remark = "blended windows of 64, overlap 0.25: not the exact result"
    for word in (f"result   {remark}", "windows  4 run of 4, weights constant", "64.0 GiB allowed", "written  y.zarr"):
        assert word in called.out
    written = zarr.open_array("y.zarr", mode="r")
    assert written.shape == (1, 5, 100, 80) and written.attrs["description"] == remark
    report = told(call(*RUN, "a.npy", *words, "--argmax", "1", "--as", "uint8", "--json", "--hard"))
    assert report["result"] == remark and not report["exact"] and report["windows_run"] == report["windows"] == 4
    assert sum(report["memory"].values()) == report["projected_bytes"]
    np.testing.assert_array_equal(np.load("a.npy"), np.asarray(written).argmax(1)[:, None])


def test_the_report_of_a_streamed_run(call, files):
    called = call(*RUN, "y.npy", "--max-memory", "64GiB", "--report", "r.html")
    assert called.code == 0 and "written  y.npy, r.html" in called.out
    page = (files / "r.html").read_text("utf-8")
    data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1])
    assert [one["name"] for one in data["pass_times"]] == ["pass 1"] and data["outputs"] == {"y": "y.npy"}
    assert "most memory measured" in page and "<polyline" in page


def test_no_output_is_refused(call, files):
    called = call("run", "m.onnx", "--input", "x.npy", "--max-memory", "64GiB")
    assert called.code == 2 and "--output is missing" in called.err


def test_large_inputs_are_run_band_by_band_where_memory_is_short(call, files, monkeypatch):
    """Small ones are not looked at, and large ones that fit run in core."""
    monkeypatch.setattr(large_files, "LARGE_FILE_BYTES", 1000)
    assert "latency" in call(*RUN, "y.npy").out
    monkeypatch.setattr(stream, "available_bytes", lambda: 2**10)
    assert "passes   1" in call(*RUN, "y.npy").out
    monkeypatch.setattr(large_files, "LARGE_FILE_BYTES", 2**26)
    assert "latency" in call(*RUN, "y.npy").out


def test_plan_takes_what_run_takes(call, files, monkeypatch):
    """Where tensors are spilled, if any may be, and windows of an image of any size."""
    (files / "m.onnx").write_bytes(pools())
    monkeypatch.setattr(spill_planning, "disk_speed", lambda folder: (1e13, 1e13))
    (files / "here").mkdir()
    asked = ("plan", "m.onnx", *BANDS, "--json")
    assert told(call(*asked, "--spill", "never"))["spilled"] == []
    spilling = told(call(*asked, "--scratch", "here"))
    assert spilling["spilled"] and spilling["disk"]["folder"] == "here"
    windows = told(call("plan", "m.onnx", "--window", "64", "--overlap", "0", "--shape", "x=1,3,130,64", "--json"))
    assert (windows["windows"], windows["exact"], windows["overlap"]) == (3, False, 0)
    assert "windows  1, weights gaussian" in call("plan", "m.onnx", "--window", "64").out
    assert "--overlap is of use with --window only" in call("plan", "m.onnx", "--overlap", "0.5").err
    assert "no such folder for scratch" in call(*asked, "--scratch", "nowhere").err
    assert "--output is of no use with --window" in call("plan", "m.onnx", "--window", "64", "-o", "p.json").err
    assert "--device-spec is of no use with --max-memory" in call("plan", "m.onnx", *BANDS, "--device-spec", "h200").err


def test_plan_says_how_it_would_run(call, files):
    called = call("plan", "m.onnx", "--max-memory", "64GiB")
    assert called.code == 0 and "passes   1, each down 64 rows" in called.out and "64.0 GiB allowed" in called.out
    report = told(call("plan", "m.onnx", "--max-memory", "64GiB", "--json"))
    assert report["limit_bytes"] == 2**36 and report["strips"] == [1] and report["band_rows"] <= 64
    refused = call("plan", "m.onnx", "--max-memory", "50MiB")
    assert refused.code == 2 and re.search(r"raise --max-memory to \d+MiB$", refused.err.strip())
    assert call("plan", "m.onnx", "--max-memory", "64GiB", "--html", "p.html").code == 2


def test_plan_and_run_name_a_least_memory_that_is_enough(files):
    """In processes of their own, as on a command line. What a process takes is rounded up, so that of two that differ
    by a few pages one may name a step more; the next run takes either."""

    def said(*words: str) -> subprocess.CompletedProcess:
        return forks.run(["-m", "brickrt", *words], files)

    plan, run = (said(*words, "--max-memory", "1MiB").stderr for words in (("plan", "m.onnx"), (*RUN, "y.npy")))
    assert re.sub(r"\d+", "N", plan) == re.sub(r"\d+", "N", run)
    least = [int(found[1]) for text in (plan, run) if (found := re.search(r"raise --max-memory to (\d+)MiB\n$", text))]
    assert len(least) == 2 and abs(least[0] - least[1]) in (0, RESIDENT_STEP_BYTES // MIB)
    done = said(*RUN, "y.npy", "--max-memory", f"{min(least)}MiB")
    assert done.returncode == 0, done.stderr


def test_what_is_spilled_is_said(call, files, monkeypatch):
    """By plan and run: which tensors, how large, in which passes, and the disk that this was chosen for."""
    (files / "m.onnx").write_bytes(pools())
    monkeypatch.setattr(spill_planning, "disk_speed", lambda folder: (1e13, 1e13))
    said = re.compile(r"spilled  \d+ tensors?, .* in all\n +'.+' .+iB: written in pass 1, read in 2.*\n")
    disk = re.compile(r"\ndisk     .* [GT]iB/s written, .* [GT]iB/s read in .*, measured\n?")
    planned = call("plan", "m.onnx", "--max-memory", "64GiB")
    run = call(*RUN, "y.npy", "--max-memory", "64GiB")
    assert all(word.search(one.out) for word in (said, disk) for one in (planned, run)), planned.out + run.out
    for word in ("--spill", "never"), ("--dask", "local:1"):
        assert "spilled  " not in call(*RUN, "z.zarr", "--max-memory", "2GiB", *word).out
    monkeypatch.setattr(spill_planning, "free_bytes", lambda folder: 1000)
    assert "spilled  nothing: takes 0.00 GiB beside" in call(*RUN, "y.npy", "--max-memory", "64GiB").out


def test_zarr_is_written_without_arrays_of_a_gpu(files):
    """A new process finds a package cupy, which would take memory that is promised to nobody, and leaves it out."""
    (files / "cupy.py").write_text("open('imported', 'w')")
    words = [sys.executable, "-m", "brickrt", *RUN, "y.zarr", *BANDS]
    ran = subprocess.run(words, cwd=files, env={**os.environ, "PYTHONPATH": str(files)}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert (files / "y.zarr").exists() and not (files / "imported").exists()


def test_interrupt_keeps_what_is_finished(files):
    """Ctrl-C, and the line that says how to go on."""
    out = files / "y.npy"
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from brickrt.cli import main\n"
        "from brickrt.runtime.stream import stream_job\n"
        "tell = stream_job._Countdown.tell\n"
        "def press(self, sweep, band):\n"
        "    tell(self, sweep, band)\n"
        "    band == 9 and os.kill(os.getpid(), signal.SIGINT)\n"
        "stream_job._Countdown.tell = press\n"
        "from brickrt.runtime.stream import stream_planning as p\n"
        "from brickrt.runtime.stream.stream_report import StreamCut\n"
        "plan = p.plan_stream\n"
        "stream_job.plan_stream = lambda *a, **o: plan(*a[:4], a[4] or StreamCut(1, (1,)), *a[5:], **o)\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    done = forks.run(["-c", code, *RUN, "y.npy", "--max-memory", "2G"], files)
    assert done.returncode == 128 + signal.SIGINT, done.stderr
    first, second = done.stderr.splitlines()
    assert re.fullmatch(r"brickrt: \d+ of 6\d bands are finished and kept: the same command with --resume .*", first)
    assert second == "brickrt: interrupted" and journal_path(out).exists()
    report = json.loads(forks.run(["-m", "brickrt", *RUN, "y.npy", "--resume", "--json"], files, check=True).stdout)
    assert report["bands_run"] < report["bands"] and os.path.exists(out)


def test_on_a_cluster_of_this_machine(call, files):
    """The same bytes as in one process."""
    assert call(*RUN, "one.zarr", "--max-memory", "64GiB").code == 0
    called = call(*RUN, "many.zarr", "--dask", "local:1", "--json")
    assert called.code == 0, called.err
    report = told(called)
    assert report["workers"] == 1 and report["blocks_begun"] == report["blocks"] >= 1
    one, many = (np.asarray(zarr.open_array(name, mode="r")) for name in ("one.zarr", "many.zarr"))
    np.testing.assert_allclose(one, many, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--dask", "elsewhere"), "--dask elsewhere: is no address: give tcp://HOST:PORT, or local:4"),
        (("--dask", "local:0"), "--dask local:0: give from local:1 to local:256"),
        (("--dask", "local:2", "--window", "64"), "--window is of no use on a cluster: leave it out"),
        (("--dask", "local:2", "--dashboard"), "--dashboard is of no use on a cluster: leave it out"),
        (("--dask", "local:2", "--scratch", "nowhere"), "nowhere: there is no such folder for scratch: create it"),
        (("--dask", "local:2", "--hard"), "--hard is of no use on a cluster: leave it out, or leave out --dask"),
    ],
)
def test_clusters_that_are_none(call, files, options, said):
    called = call(*RUN, "y.zarr", *options)
    assert called.code and said in called.err and len(called.err.splitlines()) == 1


@pytest.mark.parametrize(
    "way", [BANDS, ("--window", "64"), ("--dask", "local:1", "--threads", "1")], ids=lambda w: w[0]
)
def test_a_run_that_never_got_so_far_is_begun(call, files, way):
    """Scripts may say --resume always: a run may be killed while it plans. What is finished is not written over."""
    out = "y.zarr" if way[0] == "--dask" else "y.npy"
    called = call(*RUN, out, *way, "--resume", "--quiet")
    assert called.code == 0
    assert called.err == "brickrt: there is no run to go on with: this one begins at the start\n"
    before = os.stat(out).st_mtime_ns
    called = call(*RUN, out, *way, "--resume")
    assert called.code == 2 and called.err.count("\n") == 1 and os.stat(out).st_mtime_ns == before
    assert f"{out}: is there, and there is no run of it to go on with: leave out --resume to write it" in called.err


@pytest.mark.parametrize("way", [BANDS, ("--window", "64")], ids=["bands", "windows"])
def test_values_that_are_not_finite_are_told(call, files, way):
    """As in core; those that were there before they are stored as bytes."""
    called = call(*RUN, "y.npy", *way)
    assert called.code == 0 and "not finite" not in called.out
    given = pixels()
    given[0, 0, 20, 30], given[0, 1, 50, 3] = np.nan, np.inf
    np.save("x.npy", given)
    assert call(*RUN, "y.npy").code == 0
    count = int((~np.isfinite(np.load("y.npy"))).sum())
    assert 25 < count < 1000
    called = call(*RUN, "bytes.npy", "--as", "uint8:9", *way)
    assert called.code == 0 and f"values   {count} not finite" in called.out
    assert told(call(*RUN, "bands.npy", *way, "--json"))["nonfinite"] == count


def test_labels_of_blended_windows(call, files):
    assert call(*RUN, "labels.npy", "--window", "64", "--save", "labels").code == 0
    assert call(*RUN, "classes.npy", "--window", "64", "--argmax", "1").code == 0
    labels = np.load("labels.npy")
    assert labels.dtype == np.uint8 and len(np.unique(labels)) == 5
    np.testing.assert_array_equal(labels, np.load("classes.npy"))


def test_a_damaged_input_leaves_nothing_that_is_of_no_use(call, files):
    tifffile.imwrite("x.tif", np.zeros((64, 64, 3), np.uint8), rowsperstrip=8, photometric="rgb")
    os.truncate("x.tif", os.path.getsize("x.tif") // 3)
    called = call("run", "m.onnx", "--input", "x.tif", "--output", "y.npy", *BANDS)
    assert called.code == 2 and "x.tif: is cut off" in called.err and "--resume" not in called.err
    assert sorted(path.name for path in files.iterdir()) == ["m.onnx", "x.npy", "x.tif"]
