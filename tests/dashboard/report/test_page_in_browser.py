"""The report in a real browser: no error, no request, nothing wider than the screen."""

from __future__ import annotations

import io
import re
import shutil
import subprocess

import pytest

from brickrt.dashboard.report.page import write_report

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --enable-logging=stderr --v=0 --virtual-time-budget=2000 --dump-dom"
).split()
# told to the page's title: whether it fits, and what it asked of the network
PROBE = """<script>document.title = [document.documentElement.scrollWidth <= innerWidth ? "fits" : "too wide",
performance.getEntriesByType("resource").length].join(" ")</script>"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on this machine")


ABOUT = {"title": "chain", "summary": {"latency": "1 ms"}, "environment": {"cpu": "any"}}


@pytest.mark.parametrize("planned", [False, True], ids=["ran", "planned"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_in_a_browser(run, width, planned, tmp_path):
    out = io.StringIO()
    write_report(out, [] if planned else [run], ABOUT, [run.tasks] if planned else [])
    file = tmp_path / "report.html"
    file.write_text(out.getvalue().replace("</body>", PROBE + "</body>"), encoding="utf-8")
    command = [BROWSER, *OPTIONS, f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert not re.findall(r".*CONSOLE.*", done.stderr)
    assert "<title>fits 0</title>" in done.stdout
    count = len(run.tasks.plan.subgraphs)
    assert done.stdout.count("<tr>") == count + 1  # the table was built, with its head
    assert done.stdout.count('class="bar"') == (0 if planned else count)
