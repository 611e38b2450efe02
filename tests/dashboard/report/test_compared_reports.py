"""Two reports beside each other: which layers are compared, and what is refused."""

from __future__ import annotations

import io
import json
import re

import pytest

from brickrt.dashboard.report.compare_page import write_comparison
from brickrt.dashboard.report.compared_reports import RunReport, compared_layers, read_report
from brickrt.graph.errors import BrickError


def report(name: str, *subgraphs: tuple[str, str, float], **summary: str) -> RunReport:
    """A report of subgraphs: their layers, a letter each, their strategy and time."""
    found = tuple({"nodes": list(layers), "strategy": how, "busy_us": us} for layers, how, us in subgraphs)
    return RunReport(name, name, dict(summary), {"cpu": name, "python": "3"}, found)


def test_layers_are_compared_in_the_smallest_groups_that_both_have():
    """a b | c | d e      a | b c | d | e      a b c are one group, d e another; f is in one only"""
    first = report("one", ("ab", "padded", 10), ("c", "layerwise", 5), ("de", "memoized", 7))
    second = report(
        "two",
        ("a", "layerwise", 4),
        ("bc", "padded", 6),
        ("d", "layerwise", 8),
        ("e", "layerwise", 1),
        ("f", "layerwise", 3),
    )
    found = {"".join(sorted(each.nodes)): each for each in compared_layers(first, second)}
    assert {name: (each.first_us, each.second_us) for name, each in found.items()} == {
        "abc": (15, 10),
        "de": (7, 9),
        "f": (0, 3),
    }
    assert (found["abc"].first, found["abc"].second) == ("padded, layerwise", "layerwise, padded")
    assert (found["de"].second, found["f"].first) == ("2 layerwise", "")
    assert sum(each.more_us for each in found.values()) == second.busy_us - first.busy_us


def test_reports_of_two_models_are_refused():
    with pytest.raises(BrickError, match="no layer in common: give two reports of one model"):
        compared_layers(report("one", ("a", "padded", 1)), report("two", ("b", "padded", 1)))


def test_the_page_shows_both(tmp_path):
    first, second = (
        report("<one>", ("ab", "padded", 10e3), tasks="3"),
        report("two", ("ab", "layerwise", 20e3), tasks="4"),
    )
    out = io.StringIO()
    write_comparison(out, first, second, compared_layers(first, second))
    page = out.getvalue()
    assert "&lt;one&gt;" in page and "<one>" not in page
    assert re.search(r"<td>10.000 ms</td><td>20.000 ms</td>\s*<td class=\"longer\">\+10.000 ms</td>", page)
    assert 'style="width:50.00%"' in page and 'style="width:100.00%"' in page and "×2.000" in page
    assert "<td>3</td><td>4</td>" in page and "&lt;one&gt; → two" in page and "3 → 3" not in page


def test_what_is_no_report_is_refused(tmp_path):
    texts = {
        "text": "nothing",
        "data": '<script id="data" type="application/json">[1]</script>',
        "plan": '<script id="data" type="application/json">'
        + json.dumps({"graphs": [{"runs": 0, "subgraphs": []}]})
        + "</script>",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(BrickError, match="is a plan, without times" if name == "plan" else "is no report of a run"):
            read_report(tmp_path / name)
    (tmp_path / "bytes").write_bytes(b"\xff\x00")
    with pytest.raises(BrickError, match="is no report of a run"):
        read_report(tmp_path / "bytes")
    with pytest.raises(BrickError, match="cannot be read"):
        read_report(tmp_path / "missing")
