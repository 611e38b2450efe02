"""Text for people: lines on standard error, tables for standard output."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from io import StringIO

FILE_COLUMNS = 100_000  # of a table that is written to a file, where rows stay whole

BEGINS = "there is no run to go on with: this one begins at the start"  # with --resume


def note(message: str) -> None:
    """One line on standard error, whatever the message holds."""
    sys.stderr.write(f"brickrt: {printable(' '.join(message.split()))}\n")
    sys.stderr.flush()


def printable(text: str) -> str:
    """The text with control characters written out: names come from files, and the terminal would obey them."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def screen_width() -> int:
    """Columns of the screen that standard output is; `FILE_COLUMNS` where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else FILE_COLUMNS


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = (), shrinks: Sequence[str] = ()
) -> str:
    """Rows under heads, one line each; columns called in `right` are aligned to the right. On a screen that is too
    narrow, those called in `shrinks` are cut short."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        grid.add_column(Text(head), justify="right" if head in right else "left", no_wrap=head not in shrinks)
    for row in rows:
        grid.add_row(*(Text(printable(cell), no_wrap=True, overflow="ellipsis") for cell in row))
    width = screen_width() if shrinks else FILE_COLUMNS
    console = Console(file=StringIO(), force_terminal=sys.stdout.isatty(), width=width, height=25)
    with console.capture() as captured:
        console.print(grid)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def extents_text(extents: Sequence[object]) -> str:
    """`1×3×224×224`; open extents, which are None, as `?`, and none at all as `scalar`."""
    return "×".join("?" if e is None else str(e) for e in extents) or "scalar"


def shapes_text(shapes: Mapping[str, Sequence[object]]) -> str:
    """Names with their shapes, as `x 1×3×224×224, mask 1×1`."""
    return ", ".join(f"{name} {extents_text(shape)}" for name, shape in shapes.items())
