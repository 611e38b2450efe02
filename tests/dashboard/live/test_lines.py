"""Lines are measured in cells, and cut to fit."""

from __future__ import annotations

import pytest
from rich.segment import Segment

from brickrt.dashboard.live.lines import beside, cut, fit, line, plain


@pytest.mark.parametrize(
    "text", ["plain", "名前名前名前", "tab\tand\x1b[2Jcode", "e\u0301" * 9, "\u202eright", "🧱🧱🧱"]
)
@pytest.mark.parametrize("width", [0, 1, 2, 3, 5, 8, 40])
def test_lines_are_cut_to_cells(text, width):
    for spans in (fit(line(text), width), fit(line("a", (text, "green"), text), width)):
        assert Segment.get_line_length(spans) == width
        assert plain(spans).isprintable()
    assert width == 0 or Segment(cut(text, width)).cell_length == width


def test_columns_stand_beside_each_other():
    both = beside([line("名前"), line("b")], [line("right")], 6)
    assert [plain(spans) for spans in both] == ["名前    right", "b       "]
