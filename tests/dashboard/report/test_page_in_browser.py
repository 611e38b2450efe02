"""The report in a real browser: no error, no request, nothing wider than the screen."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from brickrt.dashboard.report.compare_page import write_comparison
from brickrt.dashboard.report.compared_reports import compared_layers, read_report
from brickrt.dashboard.report.page import write_report

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --enable-logging=stderr --v=0 --virtual-time-budget=2000 --dump-dom"
).split()
# told to the page's title: whether it fits, whether the drawing fills its panel and its labels their boxes at most, and
# what it asked of the network
PROBE = """<script>const svg = document.getElementById("drawing");
const boxes = svg ? [...svg.querySelectorAll("g")] : [];
document.title = [document.documentElement.scrollWidth <= innerWidth ? "fits" : "too wide",
!svg || svg.clientWidth > .95 * svg.parentElement.clientWidth ? "filled" : "empty",
boxes.every(g => g.lastChild.getComputedTextLength() < g.querySelector("rect").width.baseVal.value) ? "inside" : "over",
performance.getEntriesByType("resource").length].join(" ")</script>"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on this machine")


ABOUT = {"title": "chain", "summary": {"latency": "1 ms"}, "environment": {"cpu": "any"}}


@pytest.mark.parametrize("planned", [False, True], ids=["ran", "planned"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_in_a_browser(run, width, planned, tmp_path):
    out = io.StringIO()
    write_report(out, [] if planned else [run], ABOUT, [run.tasks] if planned else [])
    shown = seen(out.getvalue(), width, tmp_path)
    count = len(run.tasks.plan.subgraphs)
    assert shown.count("<tr>") == count + 1  # the table was built, with its head
    assert shown.count('class="bar"') == (0 if planned else count)


@pytest.mark.parametrize("width", [1280, 400])
def test_two_reports_in_a_browser(run, width, tmp_path):
    out, page = io.StringIO(), tmp_path / "run.html"
    with page.open("w", encoding="utf-8") as file:
        write_report(file, [run], ABOUT)
    report = read_report(page)
    layers = compared_layers(report, report)
    write_comparison(out, report, report, layers)
    assert seen(out.getvalue(), width, tmp_path).count('class="pair"') == len(layers)


def seen(page: str, width: int, folder: Path) -> str:
    """The page as a browser has made it, which found nothing wrong with it."""
    file = folder / "page.html"
    file.write_text(page.replace("</body>", PROBE + "</body>"), encoding="utf-8")
    command = [str(BROWSER), *OPTIONS, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},900", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert not re.findall(r".*CONSOLE.*", done.stderr)
    assert "<title>fits filled inside 0</title>" in done.stdout
    return done.stdout
