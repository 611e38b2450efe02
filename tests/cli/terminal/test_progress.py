"""Progress of long steps."""

from __future__ import annotations

import sys

from brickrt.cli.terminal import progress


def test_progress_is_for_screens_only(monkeypatch, capsys):
    with progress.shown_progress() as report:
        report("compile kernels", 1, 2)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.shown_progress() as report:
        report("compile kernels", 1, 2)
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err
    with progress.shown_progress(quiet=True) as report:
        report("compile kernels", 1, 2)
    assert capsys.readouterr() == ("", "")
