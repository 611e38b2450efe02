"""Tables on screens and in files."""

from __future__ import annotations

import sys

import pytest

from brickrt.cli.terminal.text import table

ROWS = [("1", "a long name of an operator", "12.5", "a reason that takes many words")]


@pytest.mark.parametrize("screen", [True, False])
def test_what_shrinks_fits_the_screen(monkeypatch, screen):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: screen, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    heads, row = table(("#", "ops", "Mflop", "why"), ROWS, right=("#", "Mflop"), shrinks=("ops", "why")).splitlines()
    assert "12.5" in row and "Mflop" in heads
    assert len(row) <= 40 and "…" in row if screen else row.endswith("many words")
