"""What pages have in common: the style, figures on cards, names with values."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib.resources import files

HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
{style}
"""
"""What the head of a page begins with, to be formatted with its title and `style`."""


def style() -> str:
    """The style of all pages, as an element."""
    whole = files(__package__).joinpath("page.html").read_text("utf-8")
    return whole[whole.index("<style>") : whole.index("</style>") + len("</style>")]


def cards(figures: Mapping[str, str]) -> str:
    """A card for each figure."""
    return "".join(f'<div class="card"><b>{escape(v)}</b><span>{escape(k)}</span></div>' for k, v in figures.items())


def definitions(values: Mapping[str, str]) -> str:
    """Names and values, for a list of definitions."""
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in values.items())
