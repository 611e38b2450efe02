"""Steps of the scripts for GPU machines: limits hold, and no line is lost, whatever processes do."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "bench" / "gpu"
SAYS = """import json, os, signal, subprocess, sys, time
skip = int(sys.argv[sys.argv.index("--skip") + 1])
def say(**row): print(json.dumps(row), flush=True)
say(asks=["a", "b", "c"][skip:])
"""
DONE = """
for name in ["a", "b", "c"][skip:]: say(begin=name), say(item=name, status="ok")
"""


@pytest.fixture
def steps(monkeypatch):
    """The module, with limits that tests have time for."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import steps

    monkeypatch.setattr(steps, "LEAST", 0.05)
    monkeypatch.setattr(steps, "GRACE", 0.3)
    yield steps
    for name in ("steps", "items"):
        sys.modules.pop(name, None)


def rows_of(steps, folder, text: str, seconds: float = 20.0, under: tuple[str, ...] = ()) -> list[dict]:
    """What a step says whose script is of this text, without the step's name; and how long it took at most."""
    (folder / "script.py").write_text(SAYS + text)
    step = steps.Step("one", "rows", seconds, (str(folder / "script.py"),), 1, under)
    began = time.monotonic()
    steps.run_rounds([[step]], folder / "out", 1.0, "null", {})
    assert time.monotonic() - began < seconds + 3
    found = [json.loads(line) for line in (folder / "out" / "rows.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "step"} for row in found]


OK = [{"item": name, "status": "ok"} for name in "abc"]


def test_all_is_said(steps, tmp_path):
    """What is no UTF-8 is no reason to stop."""
    assert rows_of(steps, tmp_path, r"os.write(1, b'\xff\xfe not UTF-8\n')" + DONE) == OK
    assert "not UTF-8" in (tmp_path / "out" / "log.txt").read_text()


def test_a_limit_holds_against_what_got_away(steps, tmp_path):
    """A process in a session of its own has the pipe open; the script ignores requests to end, and hangs."""
    away = "subprocess.Popen(['sleep', '30'], start_new_session=True)\n"
    hangs = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsay(begin='a'), say(item='a', status='ok'), say(begin='b')\n"
    )
    found = rows_of(steps, tmp_path, away + hangs + "time.sleep(30)\n", 1.0)
    assert found == [OK[0], {"status": "no time", "items": ["b", "c"]}]


@pytest.mark.parametrize("away", [False, True])
def test_what_a_script_leaves_behind_is_not_waited_for(steps, tmp_path, away):
    left = f"subprocess.Popen(['sleep', '30'], start_new_session={away})\n"
    assert rows_of(steps, tmp_path, left + DONE, 2.0) == OK


def test_a_crash_is_an_answer_and_the_rest_is_asked(steps, tmp_path):
    crashes = "if skip == 0: say(begin='a'), os.kill(os.getpid(), signal.SIGSEGV)\n"
    first, *rest = rows_of(steps, tmp_path, crashes + DONE)
    assert first == {"item": "a", "status": "crashed", "why": "its process ended with -11"} and rest == OK[1:]


def test_a_tool_that_finds_errors(steps, tmp_path):
    """As compute-sanitizer does: the script's own exit code is not told."""
    tool = tmp_path / "tool"
    tool.write_text('#!/bin/sh\n"$@"\nexit 9\n')
    tool.chmod(0o755)
    wrong = {"status": "failed", "why": "the process ended with 9: see log.txt"}
    assert rows_of(steps, tmp_path, DONE, under=(str(tool),)) == [*OK, wrong]
    found = rows_of(steps, tmp_path, DONE, under=("a-tool-that-is-not-there",))
    assert found[-1] == {"status": "missing", "why": "a-tool-that-is-not-there is not installed"}
