"""Type checkers and editors understand an installed brickrt: this one, whether editable or a wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("support") / "user_script.py"
CHECKERS = {
    "mypy": ["mypy", "--strict", "--cache-dir", os.devnull, "--python-executable", sys.executable],
    "basedpyright": ["basedpyright", "--level", "error", "--pythonpath", sys.executable],
}
CHANGES = {  # what a user may get wrong
    "right": ("", ""),
    "adds_number_to_text": ("stats.run_ms + 1.0", 'stats.run_ms + "ms"'),
    "unknown_strategy": ('strategy="padded"', 'strategy="fast"'),
    "unknown_name": ("brickrt.load", "brickrt.open"),
}


@pytest.fixture(scope="module", params=CHECKERS)
def said(request, tmp_path_factory) -> dict[str, list[str]]:
    """What a checker says of each script, in a folder where the sources of brickrt are not beside them."""
    if find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    folder = tmp_path_factory.mktemp("scripts")
    for name, (right, wrong) in CHANGES.items():
        (folder / f"{name}.py").write_text(SCRIPT.read_text().replace(right, wrong) if right else SCRIPT.read_text())
    words = [sys.executable, "-m", *CHECKERS[request.param], *(f"{name}.py" for name in CHANGES)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)
    lines = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 1, lines
    return {name: [line for line in lines if f"{name}.py:" in line and "error" in line] for name in CHANGES}


def test_a_users_script_passes(said):
    assert said["right"] == []


@pytest.mark.parametrize("name", list(CHANGES)[1:])
def test_mistakes_are_found(said, name):
    """So what the API takes and gives has types, not just anything."""
    assert len(said[name]) >= 1, said
