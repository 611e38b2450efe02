"""The report: what it says agrees with the run, and the page needs nothing from outside."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from brickrt.dashboard import figures as figuring
from brickrt.dashboard.figures import subgraph_figures
from brickrt.dashboard.recording import GraphRun
from brickrt.dashboard.report.drawing import draw_layers
from brickrt.dashboard.report.page import brick_order, timeline, write_report

ABOUT = {"title": "chain </script> & co", "summary": {"latency": "1 ms"}, "environment": {"cpu": "<any>"}}


def page(run: GraphRun) -> str:
    out = io.StringIO()
    write_report(out, [run, run], ABOUT)
    return out.getvalue()


def test_figures_add_up(run):
    figures = subgraph_figures([run])
    took = (run.events.end - run.events.start)[run.tasks.task_subgraph[run.events.task] >= 0].sum() / 1e3
    assert sum(f.busy_us for f in figures) == pytest.approx(took)
    assert sum(f.share for f in figures) == pytest.approx(1)
    assert all(0 <= f.operations <= s.flops for f, s in zip(figures, run.tasks.plan.subgraphs))
    assert sum(f.operations for f in figures) > 0
    assert all(f.least_us >= 0 and f.moved_bytes > 0 for f in figures)


def test_rooflines_are_those_of_the_measured_processor(run, monkeypatch):
    def twice(spec):
        gbps = {level: 2 * speed for level, speed in spec.bandwidth.items()}
        return replace(spec, peak_gflops_per_core=2 * spec.peak_gflops_per_core, bandwidth=gbps)

    before = [f.least_us for f in subgraph_figures([run])]
    monkeypatch.setattr(figuring, "measured", twice)
    assert [f.least_us for f in subgraph_figures([run])] == pytest.approx([us / 2 for us in before])


def test_the_timeline_holds_all_busy_time(run):
    bars = timeline(run)
    assert sum(bar[2] for bar in bars) == pytest.approx(sum(f.busy_us for f in subgraph_figures([run])), rel=1e-3)
    assert {bar[3] for bar in bars} <= set(range(len(run.tasks.plan.subgraphs)))


def test_bricks_are_numbered_in_the_order_of_their_run(run):
    orders = [o for k in range(len(run.tasks.plan.subgraphs)) if (o := brick_order(run, k))]
    assert orders
    for order in orders:
        cells = np.array(order["cells"]).reshape(-1)
        np.testing.assert_allclose(np.sort(cells), np.linspace(0, 1, len(cells)), atol=2e-3)


def test_every_layer_is_drawn_once_below_what_it_reads(run):
    drawing, graph = draw_layers(run.tasks.plan), run.tasks.plan.graph
    assert sorted(node["number"] for node in drawing["nodes"]) == list(range(len(graph.nodes)))
    assert len({(node["x"], node["y"]) for node in drawing["nodes"]}) == len(graph.nodes)
    assert all(drawing["nodes"][a]["y"] < drawing["nodes"][b]["y"] for a, b in drawing["edges"])


def test_the_page_is_self_contained_and_its_data_is_json(run):
    html = page(run)
    assert not re.search(r'(src|href)="(?!data:)', html) and "url(" not in html and "@import" not in html
    assert "<title>chain &lt;/script&gt; &amp; co</title>" in html
    data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', html, re.S).group(1))
    assert data["title"] == ABOUT["title"] and data["graphs"][0]["runs"] == 2
    assert {name for s in data["graphs"][0]["subgraphs"] for name in s["nodes"]} >= {"first", "second <&>"}
