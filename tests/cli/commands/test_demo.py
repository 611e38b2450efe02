"""`brickrt demo`, on a small picture."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import pytest

from brickrt.demo import engines
from tests.support.programs import forks

WRITTEN = ["before.png", "after.png", "side-by-side.png", "report.html"]


@pytest.fixture
def one_engine(monkeypatch):
    """Spares the processes of the engines that it is compared with."""
    monkeypatch.setattr(engines, "ENGINES", ("bricks",))


def test_everything_is_written_and_told(call, tmp_path):
    Image = pytest.importorskip("PIL.Image")
    out = tmp_path / "demo"
    ended = call("demo", "--output", out, "--size", 256, "--threads", 1, "--runs", 1, "--json")
    assert ended.code == 0 and ended.err == ""
    report = json.loads(ended.out)
    assert report["psnr"]["after"] > report["psnr"]["before"] + 5
    assert sorted(os.listdir(out)) == sorted(WRITTEN)
    assert report["written"] == [str(out / name) for name in WRITTEN]
    assert {*report["engines"], *report["missing"]} == {"bricks", "layerwise", "onnxruntime"}
    for figures in report["engines"].values():
        assert figures["psnr"] == pytest.approx(report["psnr"]["after"], abs=0.01)
        assert 0 < figures["ms"]["min"] <= figures["ms"]["median"] <= figures["ms"]["max"]
        assert figures["peak_bytes"] is None or 2**20 < figures["peak_bytes"] < 2**30
    assert Image.open(out / "before.png").size == Image.open(out / "after.png").size == (256, 256)
    page = (out / "report.html").read_text()
    assert "256×256" in page and "block3.depth" in page


def test_the_table(call, tmp_path, one_engine):
    ended = call("demo", "--out", tmp_path, "--size", 64, "--threads", 1, "--runs", 1)
    assert ended.code == 0 and "brickrt, bricks" in ended.out and str(tmp_path / "after.png") in ended.out
    again = call("demo", "--out", tmp_path, "--size", 64, "--threads", 1, "--runs", 1)
    assert again.code == 0 and sorted(os.listdir(tmp_path)) == sorted(WRITTEN)


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (("--size", 63), "--size 63 is impossible"),
        (("--size", 2), "--size 2 is impossible"),
        (("--size", 10**6), "--size 1000000 is impossible"),
        (("--size", "big"), "--size"),
        (("--threads", 0), "threads 0 is impossible"),
        (("--runs", 0), "--runs"),
        (("--out", __file__), "is a file"),
        (("--out", "/nowhere/demo"), "there is no folder /nowhere"),
        (("more",), "more"),
    ],
)
def test_bad_options_are_refused_in_one_line(call, words, about):
    ended = call("demo", *words)
    assert ended.code == 2 and about in ended.err and ended.err.count("\n") == 1 and ended.out == ""


def test_without_pillow_one_line_says_so(call, tmp_path, monkeypatch):
    monkeypatch.setattr("brickrt.cli.commands.demo.find_spec", lambda name: None)
    ended = call("demo", "--out", tmp_path / "demo")
    assert ended.code == 2 and "brickrt[images]" in ended.err and ended.err.count("\n") == 1
    assert not (tmp_path / "demo").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
def test_an_interrupted_demo_leaves_nothing(tmp_path):
    """It is interrupted while a process of its own measures an engine."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    words = ["demo", "--out", str(tmp_path / "demo"), "--size", "256", "--threads", "1", "--runs", "10000"]
    environment = os.environ | {"TMPDIR": str(scratch)}
    with open(tmp_path / "told", "w+") as told:
        process = forks.started(["-m", "brickrt", *words], [told.fileno()] * 2, tmp_path, environment)
        while process.exitcode is None and not list(scratch.glob("*/noisy.npy")):
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        process.join(60)
        told.seek(0)
        assert process.exitcode == 130 and told.read() == "brickrt: interrupted\n"
    assert not (tmp_path / "demo").exists() and not list(scratch.iterdir())
