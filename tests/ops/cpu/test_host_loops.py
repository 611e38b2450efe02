"""The words of the host's compiled loops: by name, in one order for those who call and those who are called."""

from __future__ import annotations

import pytest

from brickrt.ops.cpu.host_loops import REGION_AXIS_WORDS, REGION_WORDS, in_order, with_axes


def test_words_are_in_the_order_of_their_names():
    assert in_order(("out", "rows"), rows=3, out=7) == [7, 3]
    names = with_axes(REGION_WORDS, REGION_AXIS_WORDS, 2)
    assert names[: len(REGION_WORDS)] == REGION_WORDS and len(set(names)) == len(names)
    assert names[len(REGION_WORDS) :][: len(REGION_AXIS_WORDS)] == tuple(f"{name}0" for name in REGION_AXIS_WORDS)


@pytest.mark.parametrize("values", [{"out": 7}, {"out": 7, "rows": 3, "wide": 1}])
def test_missing_and_unknown_words_are_refused(values):
    with pytest.raises(KeyError, match="words"):
        in_order(("out", "rows"), **values)
