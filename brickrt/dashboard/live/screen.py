"""The whole screen of a terminal, as lines that change in place."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rich.console import Console

from brickrt.dashboard.live.lines import Line, coded, width_of


class Screen:
    """Draws on the alternate screen; writes only the lines that changed, all of a frame at once."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._shown: list[str] = []
        self._size = (0, 0)

    def open(self) -> None:
        self._size = (0, 0)  # nothing of an earlier screen is left
        self.console.set_alt_screen(True)
        self.console.show_cursor(False)

    def close(self) -> None:
        self.console.show_cursor(True)
        self.console.set_alt_screen(False)

    def size(self) -> tuple[int, int]:
        """Columns and rows: those of the terminal, whatever COLUMNS and LINES say that a shell set long ago."""
        try:
            columns, rows = os.get_terminal_size(self.console.file.fileno())
        except (OSError, ValueError):  # no terminal: its size is a matter of agreement
            columns, rows = self.console.size
        return columns, rows

    def draw(self, lines: Sequence[Line], width: int, height: int) -> None:
        """Shows lines that fit a screen of this size."""
        colour = self.console.color_system is not None and not self.console.no_color
        parts = []
        if (width, height) != self._size:
            self._size, self._shown = (width, height), []
            parts.append("\x1b[2J")
        for row, spans in enumerate(lines):
            # clearing after a full line would take its last character
            text = coded(spans, colour) + ("\x1b[K" if width_of(spans) < width else "")
            if row >= len(self._shown) or self._shown[row] != text:
                parts.append(f"\x1b[{row + 1};1H{text}")
                self._shown[row : row + 1] = [text]
        if parts:
            self.console.file.write("".join(parts))
            self.console.file.flush()
