"""What is written to a terminal, frame by frame."""

from __future__ import annotations

from io import StringIO

import pytest

from brickrt.dashboard.live.lines import fit, line
from brickrt.dashboard.live.screen import Screen


class ColourTerminal(StringIO):
    """A terminal that keeps what is written to it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def drawn(monkeypatch):
    """What is written for frames of two lines, one after the other."""

    def draw(*frames: tuple[str, str], no_colour: bool = False) -> list[str]:
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("NO_COLOR", "1") if no_colour else monkeypatch.delenv("NO_COLOR", raising=False)
        out = ColourTerminal()
        screen = Screen(out)
        assert screen.is_usable
        screen.open()
        seen = []
        for first, second in frames:
            before = len(out.getvalue())
            screen.draw([fit(line((first, "green")), 4), fit(line((second, "reverse")), 4)], 4, 2)
            seen.append(out.getvalue()[before:])
        return seen

    return draw


def test_only_lines_that_changed_are_written(drawn):
    whole, nothing, second = drawn(("a", "b"), ("a", "b"), ("a", "c"))
    assert whole == "\x1b[2J\x1b[1;1H\x1b[32ma\x1b[0m   \x1b[2;1H\x1b[7mb\x1b[0m   "
    assert nothing == "" and second == "\x1b[2;1H\x1b[7mc\x1b[0m   "


def test_colours_are_left_out_where_they_are_not_wanted(drawn):
    (whole,) = drawn(("a", "b"), no_colour=True)
    assert "\x1b[32m" not in whole and "\x1b[7mb\x1b[0m" in whole


def test_files_and_simple_terminals_are_no_screens(monkeypatch):
    assert not Screen(StringIO()).is_usable
    monkeypatch.setenv("TERM", "dumb")
    assert not Screen(ColourTerminal()).is_usable
