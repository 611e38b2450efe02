"""The commands' options and help."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import get_args

import pytest
import typer

from brickrt.cli import requests
from brickrt.cli.app import app
from brickrt.plan.options import Precision, Strategy
from brickrt.runtime.program_protocol import LaunchMode


@pytest.mark.parametrize(
    "words", ["", "--help", "run --help", "plan --help", "tune --help", "bench --help", "zoo --help", "--version"]
)
def test_help(call, words):
    called = call(*words.split())
    assert called.code == 0 and "brickrt" in called.out and called.err == ""


@pytest.mark.parametrize(
    "words", ["", "run", "plan", "tune", "compile", "bench", "demo", "doctor", "zoo", "zoo list", "zoo export"]
)
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


def test_help_loads_no_heavy_library():
    code = "import sys, brickrt.cli\nbrickrt.cli.main(['run', '--help'])\nprint(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.strip("'[],") for name in done.stderr.split()}
    assert not loaded & {"numpy", "onnx", "llvmlite", "networkx", "PIL"}


@pytest.mark.parametrize(
    ("option", "known"),
    [(requests.Strategy, Strategy), (requests.Precision, Precision), (requests.Launch, LaunchMode)],
    ids=["strategy", "precision", "launch"],
)
def test_options_take_what_the_api_takes(option, known):
    assert get_args(option) == get_args(known)
