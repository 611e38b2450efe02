"""Every block of code in docs/ runs, with the installed brickrt, in a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import run_page
from tests.support.run_page import blocks

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """Kernels are compiled once for all pages; the speeds of the machine are not measured."""
    tools = os.path.dirname(sys.executable)
    caches = os.path.join(os.environ["BRICKRT_CACHE_DIR"], "pages")
    path = tools + os.pathsep + os.environ["PATH"]
    return os.environ | {"PATH": path, "BRICKRT_CACHE_DIR": caches, "BRICKRT_CALIBRATE": "0", "NO_COLOR": "1"}


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page, environment, tmp_path):
    runner = [sys.executable, run_page.__file__, str(page)]
    ended = subprocess.run(runner, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, f"{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("*.md")], ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    targets = [link for link in LINK.findall(page.read_text("utf-8")) if "://" not in link]
    assert [link for link in targets if not (page.parent / link).exists()] == []
