"""The page of a run in bounded memory, and its chart."""

from __future__ import annotations

import io
import json
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from brickrt.dashboard.report.memory_chart import MemoryOverTime, memory_chart
from brickrt.dashboard.report.stream_page import write_stream_report

MIB = 2**20
SAMPLES = [(0.0, 100 * MIB), (1.5, 300 * MIB), (3.0, 200 * MIB)]
TOLD = MemoryOverTime(SAMPLES, 350 * MIB, 400 * MIB, 310 * MIB, [(0.5, "pass <1>"), (2.0, "pass 2")], "a & b")
SVG = "{http://www.w3.org/2000/svg}"


def test_the_chart_is_right_about_what_it_was_told():
    drawn = ElementTree.fromstring(memory_chart(TOLD))
    texts = [one.text for one in drawn.iter(f"{SVG}text")]
    for words in (
        "a & b",
        "pass <1>",
        "pass 2",
        "allowed 400.0 MiB",
        "projected 350.0 MiB",
        "measured at most 310.0 MiB",
    ):
        assert words in texts
    (curve,) = drawn.iter(f"{SVG}polyline")
    x, y = zip(*(map(float, point.split(",")) for point in curve.get("points").split()))
    assert (x[1] - x[0]) == pytest.approx(x[2] - x[1], abs=0.2) and y[1] < y[2] < y[0]
    assert (y[0] - y[2]) == pytest.approx(y[2] - y[1], abs=0.2)


def test_names_of_lines_do_not_lie_on_each_other():
    near = MemoryOverTime([(0.0, 396 * MIB), (9.0, 398 * MIB)], 399 * MIB, 400 * MIB)
    texts = ElementTree.fromstring(memory_chart(near)).iter(f"{SVG}text")
    heights = sorted(float(one.get("y")) for one in texts if one.text.startswith(("allowed", "proj", "meas")))
    assert len(heights) == 3 and min(b - a for a, b in pairwise(heights)) >= 12


@pytest.mark.parametrize("samples", [[], [(0.0, 5)]])
def test_a_run_that_was_over_at_once_is_drawn(samples):
    assert ElementTree.fromstring(memory_chart(MemoryOverTime(samples, 10, 20))).tag == f"{SVG}svg"


def test_the_page_holds_its_figures_and_needs_nothing_from_outside():
    out = io.StringIO()
    told = {"model": "</script>", "peak_bytes": 300 * MIB}
    about = {"title": "m.onnx → <y>", "summary": {"peak": "300 MiB"}, "environment": {"cpu": "<any>"}}
    write_stream_report(out, told, about, {"pass 1": 1.25}, TOLD)
    page = out.getvalue()
    assert json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1]) == told
    for words in (
        "m.onnx → &lt;y&gt;",
        "<b>300 MiB</b><span>peak</span>",
        ">pass 1</td><td>1.25<",
        "&lt;any&gt;",
        "<polyline",
    ):
        assert words in page
    assert not re.findall(r'(?:src|href)="(?!data:)|@import|url\(', page)
