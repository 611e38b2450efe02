"""Figures of runs: added up, and as people read them."""

from __future__ import annotations

from brickrt.runtime.stats import Stats

SOME = Stats(tasks=3, waits=1, run_ms=2.0, level_bytes={"l2": 1 << 20}, host_nodes={"<a>": 0.5})


def test_sums():
    total = Stats.total([SOME, SOME, Stats(tasks=1, host_nodes={"b": 1.0})])
    assert (total.tasks, total.waits, total.run_ms) == (7, 2, 4.0)
    assert total.level_bytes == {"l2": 2 << 20} and total.host_nodes == {"<a>": 1.0, "b": 1.0}


def test_people_read_lines_and_tables():
    text, html = repr(SOME), SOME._repr_html_()
    for words in ("2.000 ms in the engine", "3: 0 complete first", "beyond l2", "1.0 MiB, modelled", "<a>, 0.500 ms"):
        assert words in text
    assert html.startswith("<table>") and "&lt;a&gt;" in html and "<a>" not in html
    assert html.count("<tr>") == len(text.splitlines())
