"""`brickrt demo` in a pseudo-terminal."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("fcntl", reason="pseudo-terminals are of POSIX systems")
pytest.importorskip("pyte", reason="reading screens needs pyte: pip install brickrt[test]")

from tests.support.programs.terminals import Terminal


def demo(folder, *words: str) -> Terminal:
    return Terminal(["demo", "--out", "out", "--threads", "1", "--runs", "1", *words], 100, 30, folder)


def test_the_demo_shows_its_runs_live(tmp_path):
    terminal = demo(tmp_path, "--size", "512")
    terminal.read(60, terminal.shows("tasks/s"))
    assert any("taking out the noise" in row for screen in terminal.seen for row in screen)
    assert terminal.end(120) == 0 and len(os.listdir(tmp_path / "out")) == 4
    assert any("brickrt, bricks" in row for row in terminal.screen.display)


def test_ctrl_c_on_the_dashboard_leaves_nothing(tmp_path):
    terminal = demo(tmp_path, "--size", "2048")
    assert terminal.read(60, terminal.shows("tasks/s"))
    terminal.type(b"\x03")
    assert terminal.end() == 130 and os.listdir(tmp_path) == []
