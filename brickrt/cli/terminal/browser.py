"""Pages in the user's browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path

from brickrt.cli.terminal.text import note
from brickrt.graph.errors import BrickError


def check_opened(opened: bool, page: Path | None, option: str) -> None:
    """Refuses --open where no page is written."""
    if opened and page is None:
        raise BrickError(f"--open is of use with {option} only: add {option} FILE.html, or leave it out")


def open_page(page: Path) -> None:
    """Shows a page that has been written; says so where there is no browser to do it."""
    if not webbrowser.open(page.resolve().as_uri()):
        note(f"{page}: is there, but no browser could be started: open it yourself")
