"""Type checkers and editors understand an installed brickrt: this one, whether editable or a wheel."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("support") / "user_script.py"
CHECKERS = {
    "mypy": ["mypy", "--strict", "--python-executable", sys.executable],
    "basedpyright": ["basedpyright", "--level", "error", "--pythonpath", sys.executable],
}


@pytest.fixture
def script(tmp_path) -> Path:
    """The user's script in a folder of its own, where the sources of brickrt are not beside it."""
    copy = tmp_path / "user.py"
    copy.write_text(SCRIPT.read_text())
    return copy


def said(checker: str, script: Path) -> tuple[int, str]:
    if find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    words = [sys.executable, "-m", *CHECKERS[checker], script.name]
    done = subprocess.run(words, cwd=script.parent, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_users_script_passes(checker, script):
    code, text = said(checker, script)
    assert code == 0, text


@pytest.mark.parametrize(
    ("checker", "complaint"), [("mypy", "Unsupported operand types"), ("basedpyright", "not supported for types")]
)
def test_types_are_known_and_not_anything(checker, complaint, script):
    """A script that adds a number to a text is refused, since what the API gives has a type."""
    script.write_text(script.read_text().replace("stats.run_ms + 1.0", 'stats.run_ms + "ms"'))
    code, text = said(checker, script)
    assert code != 0 and complaint in text, text


def test_unknown_options_are_refused(script):
    """Options have the names of their values for types."""
    script.write_text(script.read_text().replace('strategy="padded"', 'strategy="fast"'))
    code, text = said("mypy", script)
    assert code != 0 and '"strategy"' in text, text
