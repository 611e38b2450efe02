"""The commands' options and help."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import get_args

import pytest
import typer

from brickrt.cli import requests
from brickrt.cli.app import app
from brickrt.plan.device.device_spec import PRESETS
from brickrt.plan.options import CpuPrecision, Precision, Rules, Strategy
from brickrt.quantization.given import Method
from brickrt.runtime.compiled.targets import TARGETS
from brickrt.runtime.program_protocol import LaunchMode

STRATEGIES = "auto, layerwise, padded, memoized, fused"


@pytest.mark.parametrize(
    "words", ["", "--help", "run --help", "plan --help", "tune --help", "bench --help", "zoo --help", "--version"]
)
def test_help(call, words):
    called = call(*words.split())
    assert called.code == 0 and "brickrt" in called.out and called.err == ""


@pytest.mark.parametrize(
    "words",
    [
        "",
        "run",
        "plan",
        "tune",
        "compile",
        "quantize",
        "bench",
        "compare",
        "demo",
        "doctor",
        "zoo",
        "zoo list",
        "zoo export",
    ],
)
def test_help_fits_a_screen_and_has_examples(call, words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = call(*words.split(), "--help").out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert "  Examples:" in lines
    command = typer.main.get_command(app)
    for word in words.split():
        command = command.commands[word]
    shown = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    options = {name for p in shown for name in p.opts} - {"--help"}
    assert not [name for name in options if not re.search(rf"{name}\b", " ".join(lines))]


def test_each_option_of_a_run_has_a_line_of_its_own(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    called = call("run", "--help-all")
    assert called.code == 0 and called.err == "" and max(map(len, called.out.splitlines())) <= 100
    lines = [line.split()[0].rstrip(",") for line in called.out.splitlines() if line.startswith("  -")]
    params = typer.main.get_command(app).commands["run"].params
    firsts = {param.opts[0] for param in params if param.param_type_name == "option"}
    assert sorted(lines) == sorted(({*firsts} | {"-v"}) - {"--help-all", "--verbose"})


def test_help_loads_no_heavy_library():
    code = "import sys, brickrt.cli\nbrickrt.cli.main(['run', '--help'])\nprint(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.strip("'[],") for name in done.stderr.split()}
    assert not loaded & {"numpy", "onnx", "llvmlite", "networkx", "PIL"}


@pytest.mark.parametrize(
    ("option", "known"),
    [
        (requests.Strategy, get_args(Strategy)),
        (requests.Rules, get_args(Rules)),
        (requests.Precision, get_args(Precision)),
        (requests.CpuPrecision, get_args(CpuPrecision)),
        (requests.Launch, get_args(LaunchMode)),
        (requests.PlannedDevice, ("cpu", *PRESETS)),
        (requests.Target, TARGETS),
        (requests.RangeMethod, get_args(Method)),
    ],
    ids=["strategy", "rules", "precision", "cpu precision", "launch", "device", "target", "method"],
)
def test_options_take_what_the_api_takes(option, known):
    assert get_args(option) == known


@pytest.mark.parametrize(
    ("command", "option", "kind"),
    [
        ("run", "precision", requests.Precision),
        ("run", "launch", requests.Launch),
        ("plan", "device-spec", requests.PlannedDevice),
    ],
)
def test_help_and_completion_have_the_values(call, command, option, kind):
    text = call(command, "--help").out
    assert all(name in text for name in get_args(kind))
    words = f"brickrt {command} --{option} "
    environment = os.environ | {"_BRICKRT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    code = "from brickrt.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == list(get_args(kind))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run m --strategy fast", f"--strategy 'fast' is impossible: use one of {STRATEGIES}"),
        ("run m --brick=x", "--brick 'x' is impossible: give a whole number"),
        ("run m --repeat 0", "--repeat '0' is impossible: give a whole number of at least 1"),
        ("run m --scale wide", "--scale 'wide' is impossible: give a number, such as 0.5"),
        ("zoo export unet u.onnx --batch -1", "--batch '-1' is impossible: give a whole number of at least 0"),
        ("run m --repeat", "Option '--repeat' requires an argument: see brickrt run --help"),
        ("run", "Missing argument 'MODEL': see brickrt run --help"),
        ("bench m --zoo", "bench takes a MODEL, or --zoo alone: give one of them"),
    ],
)
def test_bad_values_are_named_with_what_would_do(call, words, message):
    called = call(*words.split())
    assert called.code == 2 and called.err == f"brickrt: {message}\n" and called.out == ""


def test_more_threads_than_cores_are_worth_a_line(call, models, monkeypatch):
    monkeypatch.setattr("brickrt.cli.terminal.threads.usable_cores", lambda: 2)
    words = ("run", models / "conv.onnx", "--random", "--shape", "x=1,3,8,8", "--threads")
    assert call(*words, 2).err == ""
    called = call(*words, 3)
    line = "brickrt: --threads 3 is slower than --threads 2: this process may use 2 cores\n"
    assert called.code == 0 and called.err == line
