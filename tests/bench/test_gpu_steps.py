"""Steps that ask a device: whatever a process does, the lines say what is known, and "no time" is never "BAD"."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.gpu import first, pack
from bench.gpu.support import steps as run_steps

ROOT = Path(__file__).parents[2]
SCRIPT = r"""
import os, subprocess, sys, time
from bench.gpu.support.items import Item, NotInstalled, options, run
from bench.gpu.support import items

def wrong(): return {"error": 0.5, "good": False}
def raises(): raise RuntimeError("an illegal  address\nwas met")
def lacks(): raise NotInstalled("no such tool")
def crashes(): os._exit(139)
def hangs():
    subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    print("noise", flush=True)
    time.sleep(60)
def away():
    subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(30)"], start_new_session=True)
    os.write(1, b"\xff\xfe not UTF-8\n")
    return {}
def stuck(): time.sleep(60)
def fine(): return {"ms": 1.23456789}
known = {f.__name__: f for f in (fine, wrong, raises, lacks, crashes, hangs, away, stuck)}
parser = options("")
parser.add_argument("--what", required=True)
asked = parser.parse_args()
if os.environ.get("SPOILED"):
    items.spoiled = lambda: True
sys.exit(run([Item(f"{word} {k}", known[word]) for k, word in enumerate(asked.what.split(","))], asked))
"""


@pytest.fixture
def steps(monkeypatch, tmp_path):
    """The module that runs steps, for modules in a folder of the test."""
    (tmp_path / "asks.py").write_text(SCRIPT)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(run_steps, "ROOT", tmp_path)
    monkeypatch.setattr(run_steps, "LEAST_SECONDS_LEFT", 0.2)
    return run_steps


def asked(steps, tmp_path, what, seconds=60.0, device="null", **how):
    """The exit code and the rows of one step."""
    step = steps.ScriptStep("some", "rows", seconds, ("asks", "--what", what), **how)
    code = steps.run_rounds([[step]], tmp_path / "out", 1.0, device, {"commit": "abc"})
    rows = [json.loads(line) for line in (tmp_path / "out" / "rows.jsonl").read_text().splitlines()]
    return code, [(row["status"], row.get("item", row.get("items"))) for row in rows], rows


def test_each_item_is_a_line(steps, tmp_path):
    code, found, rows = asked(steps, tmp_path, "fine,lacks,fine", device="cuda")
    assert code == 0 and found == [("ok", "fine 0"), ("missing", "lacks 1"), ("ok", "fine 2")]
    assert rows[0]["ms"] == 1.23457 and rows[0]["step"] == "some" and "no such tool" in rows[1]["why"]
    notes = [json.loads(line) for line in (tmp_path / "out" / "steps.jsonl").read_text().splitlines()]
    assert notes[0]["about"] == {"commit": "abc"} and notes[1]["counts"] == {"ok": 2, "missing": 1}
    assert len(list((tmp_path / "out").iterdir())) <= 8


def test_a_device_that_does_nothing_is_never_right(steps, tmp_path):
    code, found, _ = asked(steps, tmp_path, "fine,wrong")
    assert code == 0 and found == [("null", "fine 0"), ("null", "wrong 1")]


def test_what_is_wrong_is_said(steps, tmp_path, capsys):
    code, found, rows = asked(steps, tmp_path, "wrong,raises,fine", device="cuda")
    assert code == 1 and found == [("BAD", "wrong 0"), ("failed", "raises 1"), ("ok", "fine 2")]
    assert rows[1]["why"] == "RuntimeError: an illegal address was met"
    assert "BAD some: wrong 0 0.5" in capsys.readouterr().out


def test_what_comes_after_a_crash_is_done_by_a_new_process(steps, tmp_path):
    code, found, rows = asked(steps, tmp_path, "fine,crashes,fine,crashes")
    assert code == 1
    assert found == [("null", "fine 0"), ("crashed", "crashes 1"), ("null", "fine 2"), ("crashed", "crashes 3")]
    assert "139" in rows[1]["why"]


def test_what_comes_after_an_error_that_ends_all_work_is_done_by_a_new_process(steps, tmp_path, monkeypatch):
    monkeypatch.setenv("SPOILED", "1")
    code, found, _ = asked(steps, tmp_path, "raises,fine,wrong", device="cuda")
    assert code == 1 and found == [("failed", "raises 0"), ("ok", "fine 1"), ("BAD", "wrong 2")]


def test_a_hanging_step_ends_at_its_limit_with_all_that_it_has_started(steps, tmp_path):
    began = time.monotonic()
    code, found, _ = asked(steps, tmp_path, "fine,hangs,wrong", seconds=3.0)
    assert time.monotonic() - began < 30
    assert code == 0 and found == [("null", "fine 0"), ("no time", ["hangs 1", "wrong 2"])]
    assert "some: noise" in (tmp_path / "out" / "log.txt").read_text()


def test_what_a_process_leaves_behind_is_not_waited_for(steps, tmp_path, monkeypatch):
    """A grandchild in a session of its own has the pipe open; bytes that are no text are kept in the log."""
    monkeypatch.setattr(steps, "GRACE", 0.5)
    began = time.monotonic()
    assert asked(steps, tmp_path, "away,fine")[1] == [("null", "away 0"), ("null", "fine 1")]
    assert time.monotonic() - began < 25 and "not UTF-8" in (tmp_path / "out" / "log.txt").read_text()


def test_an_item_that_hangs_is_said_and_the_rest_is_asked(steps, tmp_path):
    code, found, rows = asked(steps, tmp_path, "stuck,fine", item_seconds=1.0)
    assert code == 1 and found == [("stuck", "stuck 0"), ("null", "fine 1")]
    assert rows[0]["why"] == "no answer in 1 s"


def test_shards_ask_each_item_once(steps, tmp_path):
    _, found, _ = asked(steps, tmp_path, "fine,fine,fine,fine,fine", shards=3)
    assert sorted(name for _, name in found) == [f"fine {k}" for k in range(5)]


def test_no_time_is_left_and_a_tool_is_missing(steps, tmp_path):
    assert asked(steps, tmp_path, "fine", seconds=0.0)[1] == [("no time", ["some"])]
    code, found, rows = asked(steps, tmp_path, "fine", under=("no-such-tool-anywhere",))
    assert code == 0 and found[-1] == ("missing", None) and "no-such-tool-anywhere" in rows[-1]["why"]


def test_a_tool_that_finds_something_fails(steps, tmp_path):
    """A sanitizer runs a script to its end, and has an exit code of its own."""
    tool = tmp_path / "tool"
    tool.write_text('#!/bin/sh\n"$@"\nexit 9\n')
    tool.chmod(0o755)
    code, found, rows = asked(steps, tmp_path, "fine", under=(str(tool),))
    assert code == 1 and found == [("null", "fine 0"), ("failed", None)] and "ended with 9" in rows[1]["why"]


def test_a_script_that_does_not_start_is_said(steps, tmp_path):
    step = steps.ScriptStep("some", "rows", 30, ("no_such_script",))
    assert steps.run_rounds([[step]], tmp_path / "out", 1.0, "null", {}) == 1
    (row,) = map(json.loads, (tmp_path / "out" / "rows.jsonl").read_text().splitlines())
    assert row["status"] == "failed" and "no_such_script" in (tmp_path / "out" / "log.txt").read_text()


BARE = '''
"""Stands for a machine without some packages."""
import sys

class Hook:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in "llvmlite typer rich cudnn cupy torch jax onnxruntime setuptools".split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hook())
'''


@pytest.fixture
def packed(tmp_path):
    """A packed folder, without what has to be fetched or compiled, and the environment of a bare machine."""
    folder = tmp_path / "packed"
    folder.mkdir()
    pack.copy_sources(folder)
    (folder / "hook").mkdir()
    (folder / "hook" / "sitecustomize.py").write_text(BARE)
    tools = Path(sys.executable).parent
    path = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    return folder, {**os.environ, **path, "PYTHONPATH": f"{folder / 'hook'}{os.pathsep}{folder}"}


PROGRAM = """
import sys
from pathlib import Path

import brickrt
from bench.gpu.support.steps import ScriptStep, run_rounds

assert Path(brickrt.__file__).is_relative_to(Path.cwd())
which = "--precisions", "fp32,fp16", "--families", "products,moves"
families = ScriptStep("families", "a", 100, ("bench.gpu.asks.families", *which))
checks = [ScriptStep(w, "b", 60, ("bench.gpu.asks.check", "--what", w, "--runs", "20")) for w in ("chain", "repeat")]
sys.exit(run_rounds([[families], checks], Path(sys.argv[1]), 3, "null", {}))
"""


def test_packed_sources_run_on_a_bare_machine(packed, tmp_path):
    """By PYTHONPATH alone, without what such a machine lacks: kernels of all families, networks, persistent runs."""
    (folder, env), out = packed, tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(out)], cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = [json.loads(line) for name in "ab" for line in (out / f"{name}.jsonl").read_text().splitlines()]
    assert {row["status"] for row in rows} == {"null"} and len(rows) > 60


def test_everything_is_asked_in_the_time_that_is_given(packed, tmp_path):
    """The first meeting with a GPU, on a device that does nothing: no step runs on, none is forgotten."""
    (folder, env), out, began = packed, tmp_path / "out", time.monotonic()
    words = ["sh", str(folder / "run.sh"), str(out), "first", "--device", "null", "--minutes", "0.06"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert time.monotonic() - began < 60
    files = {file.name: file.read_text().splitlines() for file in out.iterdir()}
    assert len(files) <= 8
    about, *steps = map(json.loads, files.pop("steps.jsonl"))
    assert about["about"]["commit"] and about["device"] == "null"
    known = [step.name for together in first.rounds(None) for step in together]
    assert [step["step"] for step in steps] == known
    rows = [json.loads(line) for name, lines in files.items() if name != "log.txt" for line in lines]
    assert {row["step"] for row in rows} == set(known)
    assert {row["status"] for row in rows} <= {"null", "missing", "no time"}


def test_steps_can_be_chosen(capsys):
    known = first.rounds(None)
    assert first.chosen(known, "") == known
    found = first.chosen(known, "speed fp16,probes+families")
    assert [[step.name for step in together] for together in found] == [["speed fp16"], ["probes", "families"]]
    with pytest.raises(SystemExit):
        first.chosen(known, "probes,spede")
    assert "step 'spede' is unknown: use some of probes, families" in capsys.readouterr().err


def test_a_folder_that_is_too_large_is_said(tmp_path, capsys):
    (tmp_path / "references").mkdir()
    (tmp_path / "sources").write_bytes(b"0" * (1 << 20))
    assert pack.report(tmp_path, 2.0) == 0 and pack.report(tmp_path, 0.5) == 1
    said = capsys.readouterr().out
    assert "1.00 MiB  in all, at most 0.5" in said and "no references of vgg16" in said
