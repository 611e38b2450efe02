"""The program as a process: exit codes, what is written where, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from onnx import helper

from tests.support.cli_models import save, value

PROGRAM = [sys.executable, "-m", "brickrt"]


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


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_streams_may_be_closed(models, tmp_path, closed):
    """As services start programs. What is written lands in no other file."""
    words = f"'{sys.executable}' -m brickrt plan '{models / 'conv.onnx'}' --output plan.json {closed}"
    assert subprocess.run(words, shell=True, cwd=tmp_path, check=False, timeout=100).returncode == 0
    assert json.loads((tmp_path / "plan.json").read_text())["brickrt"]
    words = f"'{sys.executable}' -m brickrt plan absent.onnx {closed}"
    assert subprocess.run(words, shell=True, cwd=tmp_path, check=False, timeout=100).returncode == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")
@pytest.mark.parametrize("words", [["zoo", "list"], ["plan", "--help"]], ids=" ".join)
def test_a_full_disk_behind_standard_output(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("brickrt: standard output cannot be written (No space")
    assert len(done.stderr.splitlines()) == 1


# tells by a file when the reference engine is in the first convolution
BUSY = """
import sys
from pathlib import Path
from brickrt.cli import main
from brickrt.ops.operators.conv import Conv

def busy(self, *args):
    Path("busy").touch()
    return evaluate(self, *args)

evaluate, Conv.evaluate = Conv.evaluate, busy
sys.exit(main(sys.argv[1:]))
"""


def test_interrupt_leaves_no_file(tmp_path):
    """Ctrl-C while the reference engine is busy."""
    x = [value("x", (1, 16, 256, 256))]
    weights = [("w", np.ones((16, 16, 3, 3), np.float32))]
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)]
    save(tmp_path / "slow.onnx", nodes, x, [value("y", (1, 16, 256, 256))], weights)
    options = ["--random", "--device", "reference", "--repeat", "9999", "--output", "y.npy"]
    words = [sys.executable, "-c", BUSY, "run", "slow.onnx", *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(words, cwd=tmp_path, preexec_fn=_listen_to_interrupts, **pipes)
    try:
        while process.poll() is None and not (tmp_path / "busy").exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=100)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (130, "", "brickrt: interrupted\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["busy", "slow.onnx"]


def _listen_to_interrupts():
    """A test run in the background ignores Ctrl-C, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_words_are_completed():
    env = os.environ | {"_BRICKRT_COMPLETE": "complete_bash", "COMP_WORDS": "brickrt ru", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-m", "brickrt"], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["run"]
