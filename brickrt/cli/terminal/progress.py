"""Progress of long steps on standard error, where that is a screen."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from brickrt.dashboard.live.keys import in_foreground
from brickrt.dashboard.live.terminal_restore import restored_by
from brickrt.runtime.progress import Progress


@contextmanager
def shown_progress(quiet: bool = False) -> Iterator[Progress]:
    """Gives a function to report long steps to: (what, done, total). It shows a bar, or nothing where standard error is
    no terminal in the foreground, or the run is `quiet`."""
    if quiet or not (sys.stderr.isatty() and in_foreground(sys.stderr)):
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    bars = Bars(*columns, console=console, transient=True, refresh_per_second=4)
    with restored_by(partial(console.show_cursor, True)), bars:
        task = bars.add_task("", total=None)
        yield lambda what, done, total: bars.update(task, description=what, completed=done, total=total)
