"""Lines of a terminal's screen as rich's segments: pieces of text with a style, measured in cells."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style

Line = list[Segment]
ELLIPSIS = "…"


def line(*pieces: str | tuple[str, str]) -> Line:
    """A line of texts and of (text, style) pairs."""
    pairs = ((piece, "") if isinstance(piece, str) else piece for piece in pieces)
    return [Segment(clean(text), Style.parse(style)) for text, style in pairs]


@lru_cache(4096)
def clean(text: str) -> str:
    """Without control characters: names come from files, and do not reach the terminal as they are."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def fit(spans: Line, width: int) -> Line:
    """The line in exactly `width` cells: filled up with blanks, or cut and ended by an ellipsis."""
    if Segment.get_line_length(spans) <= width:
        return Segment.adjust_line_length(spans, width)
    return [*Segment.adjust_line_length(spans, width - 1), Segment(ELLIPSIS)] if width > 0 else []


def cut(text: str, width: int) -> str:
    """A name in exactly `width` cells, its end left out where it is longer."""
    text = clean(text)
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + ELLIPSIS


def beside(left: Sequence[Line], right: Sequence[Line], width: int) -> list[Line]:
    """Two columns, the left one `width` cells wide."""
    nothing: Line = []
    return [[*fit(a, width), Segment("  "), *b] for a, b in zip_longest(left, right, fillvalue=nothing)]


def plain(spans: Line) -> str:
    """The text of a line."""
    return "".join(segment.text for segment in spans)
