"""Lines of a terminal's screen: pieces of text with styles, measured in cells."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rich.cells import cell_len, set_cell_size

Span = tuple[str, str]  # text and the name of its style, "" for none
Line = Sequence[Span]
CODES = {"bold": "1", "dim": "2", "reverse": "7", "green": "32", "yellow": "33", "blue": "34", "magenta": "35"}
COLOURS = ("green", "yellow", "blue", "magenta")


def line(*pieces: str | Span) -> list[Span]:
    """A line of pieces, plain text among them."""
    return [(piece, "") if isinstance(piece, str) else piece for piece in pieces]


@lru_cache(4096)
def clean(text: str) -> str:
    """Without control characters: names come from files, and do not reach the terminal as they are."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def width_of(spans: Line) -> int:
    """In cells; some characters take two."""
    return sum(len(text) if text.isascii() else cell_len(text) for text, _ in spans)


def fit(spans: Line, width: int) -> list[Span]:
    """The line cut to a number of cells, clean."""
    spans = [(clean(text), style) for text, style in spans]
    if width_of(spans) <= width:
        return spans
    fitting: list[Span] = []
    left = width - 1
    for text, style in spans:
        if cell_len(text) > left:
            fitting += [(set_cell_size(text, left).rstrip() + "…", style)] if width > 0 else []
            break
        fitting.append((text, style))
        left -= cell_len(text)
    return fitting


def padded(spans: Line, width: int) -> list[Span]:
    """The line cut or filled up to a number of cells."""
    fitting = fit(spans, width)
    return [*fitting, (" " * (width - width_of(fitting)), "")]


def cut(text: str, width: int) -> str:
    """A name in exactly so many cells, its end left out where it is longer."""
    text = clean(text)
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + "…"


def beside(left: Sequence[Line], right: Sequence[Line], width: int) -> list[list[Span]]:
    """Two columns, the left one `width` cells wide."""
    rows = max(len(left), len(right))
    lefts, rights = ([*column, *[[]] * (rows - len(column))] for column in (left, right))
    return [[*padded(a, width), ("  ", ""), *b] for a, b in zip(lefts, rights, strict=True)]


def plain(spans: Line) -> str:
    return "".join(text for text, _ in spans)


def coded(spans: Line, colour: bool) -> str:
    """The line with the terminal's codes for its styles."""
    parts = []
    for text, style in spans:
        code = CODES.get(style, "") if colour or style not in COLOURS else ""
        parts.append(f"\x1b[{code}m{text}\x1b[0m" if code else text)
    return "".join(parts)
