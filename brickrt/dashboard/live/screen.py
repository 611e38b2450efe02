"""The whole screen of a terminal, as lines that change in place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from typing import TextIO

from rich.console import Console

from brickrt.dashboard.live.lines import Line


class Screen:
    """Draws on the alternate screen; writes only the lines that changed, all of a frame at once.

    rich's Live, Layout and Table would write every line of every frame, and take 9 to 16 ms to make one instead of 0.5:
    at ten frames a second, more of a core than watching a run may cost.
    """

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream)
        self._stream = stream
        self._shown: list[Line] = []
        self._size = (0, 0)

    @property
    def is_usable(self) -> bool:
        """Whether the stream is a terminal that can place its cursor."""
        console = self._console
        is_simple = console.is_dumb_terminal or console.legacy_windows
        return self._stream.isatty() and console.is_terminal and not is_simple

    def open(self) -> None:
        """Takes the alternate screen and hides the cursor."""
        self._size = (0, 0)  # nothing of an earlier screen is left
        self._console.set_alt_screen(True)
        self._console.show_cursor(False)

    def close(self) -> None:
        """Brings back the first screen and the cursor."""
        self._console.show_cursor(True)
        self._console.set_alt_screen(False)

    def size(self) -> tuple[int, int]:
        """Columns and rows: those of the terminal, whatever COLUMNS and LINES say that a shell set long ago."""
        try:
            columns, rows = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):  # no terminal: its size is a matter of agreement
            columns, rows = self._console.size
        return columns, rows

    def draw(self, lines: Sequence[Line], width: int, height: int) -> None:
        """Shows `height` lines, each `width` cells wide."""
        with self._console:  # gathers what is written until the block ends
            if (width, height) != self._size:
                self._size, self._shown = (width, height), []
                self._console.clear(home=False)
            changed = [row for row, spans in enumerate(lines) if self._shown[row : row + 1] != [spans]]
            for _, group in groupby(enumerate(changed), key=lambda at: at[1] - at[0]):
                rows = [row for _, row in group]  # neighbours
                self._console.update_screen_lines([lines[row] for row in rows], y=rows[0])
        self._shown = list(lines)
