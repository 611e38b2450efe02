"""Every block of code in docs/ runs, with the installed brickrt, in a folder of its own."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.support.programs import forks
from tests.support.programs.run_page import blocks

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)]*))?\)")


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """Kernels are compiled once for all pages; the speeds of the machine are not measured."""
    tools = os.path.dirname(sys.executable)
    caches = os.path.join(os.environ["BRICKRT_CACHE_DIR"], "pages")
    path = tools + os.pathsep + os.environ["PATH"]
    return os.environ | {"PATH": path, "BRICKRT_CACHE_DIR": caches, "BRICKRT_CALIBRATE": "0", "NO_COLOR": "1"}


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page, environment, tmp_path):
    ended = forks.run(["-m", "tests.support.programs.run_page", page], tmp_path, environment)
    assert ended.returncode == 0, f"{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("*.md")], ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target, anchor in links(page):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), f"{target}#{anchor}"


def test_links_stay_inside_the_site():
    outside = [(page.name, target) for page in PAGES for target, _ in links(page) if target.startswith("..")]
    assert outside == []  # the site is made of docs/ alone


def test_the_site_has_every_page_once():
    named = re.findall(r"^ +- (?:.*: )?([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(page.name for page in PAGES)


def links(page: Path) -> list[tuple[str, str]]:
    """Files and anchors that a page links to, relative to it; either may be empty."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return [(target, anchor) for target, anchor in LINK.findall(text) if "://" not in target]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", head).strip().lower()) for head in heads}
