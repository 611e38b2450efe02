"""plan, zoo, doctor, and the program as a process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest
import typer
from onnx import TensorProto, helper

from brickrt import zoo
from brickrt.cli.app import app
from brickrt.cli.commands import doctor
from brickrt.cli.terminal import progress
from tests.support.cli_models import save, value

PROGRAM = [sys.executable, "-m", "brickrt"]


def _json(called):
    assert called.code == 0, called.err
    return json.loads(called.out)


# ---- plan


def test_plan_says_where_and_why(call, models):
    report = _json(call("plan", models / "conv.onnx", "--shape", "x=1,3,8,8", "--json"))
    assert report["inputs"] == {"x": [1, 3, 8, 8]}
    assert report["bytes"]["ends"] == 4 * 3 * 64 + 4 * 4 * 64
    assert report["bytes"]["constants"] > 0 and report["projected_bytes"] >= sum(report["bytes"].values())
    assert report["flops"] >= 2 * 4 * 64 * 27 and report["tasks"] > 0
    assert all(entry["why"] and entry["ops"] for entry in report["plan"])
    assert report["fallback"] == {} and report["later"] == []


def test_plan_in_words(call, models):
    called = call("plan", models / "conv.onnx", "--strategy", "memoized", "--brick", "4")
    assert called.code == 0
    assert "memoized" in called.out and "Conv" in called.out and "constants" in called.out
    assert "x[0] (N)" in called.err


def test_plan_for_another_device(call, models):
    assert _json(call("plan", models / "conv.onnx", "--device-spec", "h200", "--json"))["device"]["kind"] == "cuda"


def test_plan_lists_what_is_known_only_later(call, tmp_path):
    """x -> NonZero -> Relu: how many are not zero is not known before."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="abs"),
        helper.make_node("NonZero", ["a"], ["i"], name="count"),
        helper.make_node("Cast", ["i"], ["f"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Relu", ["f"], ["y"], name="relu"),
    ]
    save(tmp_path / "late.onnx", nodes, [value("x", (4,))], [value("y", (1, None))])
    report = _json(call("plan", tmp_path / "late.onnx", "--json"))
    assert "count" in report["fallback"]
    assert "relu" in [entry["node"] for entry in report["later"]]
    assert "relu" in call("plan", tmp_path / "late.onnx").out
    ran = _json(call("run", tmp_path / "late.onnx", "--random", "--json", "--verify"))
    assert ran["outputs"][0]["shape"] == [1, 4] and ran["verify"]["max_abs_error"] == 0


def test_plan_needs_no_values_unless_they_are_shapes(call, tmp_path):
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"], name="r")]
    save(tmp_path / "reshape.onnx", nodes, [value("x", (4,)), value("s", (2,), TensorProto.INT64)], [value("y", None)])
    called = call("plan", tmp_path / "reshape.onnx")
    assert called.code == 2 and "'s'" in called.err
    np.savez(tmp_path / "in.npz", x=np.zeros(4, np.float32), s=np.array([2, 2]))
    report = _json(call("run", tmp_path / "reshape.onnx", "--input", tmp_path / "in.npz", "--json"))
    assert report["outputs"][0]["shape"] == [2, 2]


# ---- zoo


def test_zoo_list(call):
    assert [entry["name"] for entry in _json(call("zoo", "list", "--json"))["networks"]] == zoo.names()
    assert all(name in call("zoo", "list").out for name in zoo.names())


def test_zoo_export(call, tmp_path):
    out = tmp_path / "net.onnx"
    called = call("zoo", "export", "mobilenetv2", out, "--batch", "0", "--size", "32x64", "--seed", "3")
    assert called.code == 0 and "net.onnx" in called.out
    assert out.read_bytes() == zoo.build("mobilenetv2", 0, (32, 64), 3).SerializeToString(deterministic=True)
    onnx.checker.check_model(str(out))
    report = _json(call("plan", out, "--json"))
    assert report["inputs"] == {"x": [1, 3, 32, 64]}
    assert len(report["plan"]) > 10


# ---- doctor


def test_doctor(call):
    report = _json(call("doctor", "--json"))
    cpu = report["devices"][0]
    assert cpu["kind"] == "cpu" and cpu["cores"] >= 1 and cpu["l2"] > 0 and cpu["isa"]
    assert report["caches"][0]["folder"].startswith(os.environ["BRICKRT_CACHE_DIR"])
    assert {"numpy", "onnx", "llvmlite"} <= set(report["libraries"])
    assert "devices" in call("doctor").out


def test_doctor_measures_the_machine(call, monkeypatch):
    assert "BRICKRT_CALIBRATE=0" in call("doctor").out
    monkeypatch.setenv("BRICKRT_CALIBRATE", "1")
    speeds = _json(call("doctor", "--calibrate", "--json"))["devices"][0]["speeds"]
    assert speeds["peak_gflops_per_core"] > 0 and speeds["bandwidth"]["l2"] > 0
    assert speeds == _json(call("doctor", "--json"))["devices"][0]["speeds"]
    assert "GFLOP/s a core" in call("doctor").out


def test_doctor_says_how_to_get_what_is_missing(call, monkeypatch):
    found = {"numpy": "2.0", "cupy-cuda13x": "14", "cuda-bindings": "13", "nvidia-cudnn-frontend": "1"}
    monkeypatch.setattr(doctor, "_version", found.get)
    missing = _json(call("doctor", "--json"))["missing"]
    assert [entry["get"] for entry in missing] == ['pip install "brickrt[images]"', 'pip install "brickrt[bench]"']
    found.clear()
    assert 'brickrt[cuda12]"' in call("doctor").out


def test_doctor_asks_the_driver(call, tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA Example, 1024, 550.1, 9.0'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    gpu = _json(call("doctor", "--json"))["devices"][1]
    assert gpu == {
        "kind": "cuda",
        "name": "NVIDIA Example",
        "memory": 1 << 30,
        "driver": "550.1",
        "compute_capability": "9.0",
    }
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert "unknown" in call("doctor").out


# ---- help, progress, and the process


@pytest.mark.parametrize(
    "words", ["", "--help", "run --help", "plan --help", "bench --help", "zoo --help", "--version"]
)
def test_help(call, words):
    called = call(*words.split())
    assert called.code == 0 and "brickrt" in called.out and called.err == ""


@pytest.mark.parametrize("words", ["", "run", "plan", "bench", "demo", "doctor", "zoo", "zoo list", "zoo export"])
def test_help_fits_a_screen_and_has_examples(call, words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = call(*words.split(), "--help").out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert "  Examples:" in lines
    command = typer.main.get_command(app)
    for word in words.split():
        command = command.commands[word]
    options = {name for p in command.params if p.param_type_name == "option" for name in p.opts} - {"--help"}
    assert not [name for name in options if not re.search(rf"{name}\b", " ".join(lines))]


def test_progress_is_for_screens_only(monkeypatch, capsys):
    with progress.shown_progress() as report:
        report("compile kernels", 1, 2)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.shown_progress() as report:
        report("compile kernels", 1, 2)
    assert capsys.readouterr().out == ""


def test_help_loads_no_heavy_library():
    code = "import sys, brickrt.cli\nbrickrt.cli.main(['run', '--help'])\nprint(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.strip("'[],") for name in done.stderr.split()}
    assert not loaded & {"numpy", "onnx", "llvmlite", "networkx", "PIL"}


def test_bad_input_as_a_process(tmp_path):
    done = subprocess.run([*PROGRAM, "run", "absent.onnx"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "brickrt: absent.onnx: no such file: check the path\n"


def test_json_alone_is_on_standard_output(models):
    words = [*PROGRAM, "run", models / "sum.onnx", "--random", "--json", "--device", "reference"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["model"] == "small"
    assert done.stderr.startswith("brickrt: open dimensions are 1")


def test_screens_that_know_only_ascii():
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*PROGRAM, "zoo", "list"], capture_output=True, text=True, check=True, env=env)
    assert "3?224?224" in done.stdout


def test_a_closed_pipe_is_silent():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*PROGRAM, "zoo", "list"], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert done.stderr == "" and done.returncode == 1


def test_interrupt_leaves_no_file(tmp_path):
    """Ctrl-C while the reference engine is busy."""
    x = [value("x", (1, 16, 256, 256))]
    weights = [("w", np.ones((16, 16, 3, 3), np.float32))]
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)]
    save(tmp_path / "slow.onnx", nodes, x, [value("y", (1, 16, 256, 256))], weights)
    options = ["--random", "--device", "reference", "--repeat", "9999", "--output", "y.npy"]
    words = [*PROGRAM, "run", "slow.onnx", *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(words, cwd=tmp_path, preexec_fn=_listen_to_interrupts, **pipes)
    try:
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (130, "", "brickrt: interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["slow.onnx"]


def _listen_to_interrupts():
    """A test run in the background ignores Ctrl-C, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
