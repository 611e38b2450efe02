"""Which groups share a block of output channels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.ops.cpu.products.groups.lane_groups import MOST_SHUFFLES, LaneGroups

LANES = st.sampled_from([4, 8, 16])


@st.composite
def layouts(draw) -> LaneGroups:
    parts, group_out, count = draw(st.integers(1, 2)), draw(st.integers(1, 40)), draw(st.integers(2, 9))
    each = group_out * count  # parts of whole groups
    return LaneGroups(draw(LANES), draw(st.integers(1, 40)), group_out, parts, each)


def channels(g: LaneGroups, block: int) -> list[int]:
    """The channels of the product in a block."""
    part, inner = divmod(block, g.blocks)
    ends = inner * g.lanes, min((inner + 1) * g.lanes, g.each)
    return [part * g.each + channel for channel in range(*ends)]


@settings(max_examples=60, deadline=None)
@given(layouts())
def test_groups_of_blocks(g):
    found = [sorted({c // g.group_out for c in channels(g, block)}) for block in range(g.parts * g.blocks)]
    assert g.groups.tolist() == [[held[0], held[-1]] for held in found]
    assert g.held == sorted({len(held) for held in found})


@settings(max_examples=60, deadline=None)
@given(layouts())
def test_shuffled_lanes_read_their_own_group(g):
    outputs, inputs = g.period
    assert outputs * g.lanes % g.group_out == 0 and inputs * g.lanes % g.group_in == 0
    if not g.shuffles:
        return
    assert outputs * g.group_in <= MOST_SHUFFLES
    for block in range(g.parts * g.blocks):
        period, phase = divmod(block, outputs)
        first = period * inputs * g.lanes
        for member in range(g.group_in):
            read = first + g.sources(phase, member)
            wanted = [c // g.group_out * g.group_in + member for c in channels(g, block)]
            assert read[: len(wanted)].tolist() == wanted
            assert np.ptp(read // g.lanes) <= 1


@pytest.mark.parametrize(
    ("lanes", "width", "shuffled", "held"),
    [(16, 1, True, [16]), (16, 2, True, [8]), (16, 4, True, [4]), (16, 8, False, [2]), (16, 24, False, [1, 2]),
     (8, 4, False, [2]), (8, 2, True, [4]), (4, 2, False, [2]), (16, 5, False, [4])],
)  # fmt: skip
def test_ways(lanes, width, shuffled, held):
    """Two groups in a block are cheapest by masks; of odd widths there are too many kinds of blocks for shuffles."""
    g = LaneGroups(lanes, width, width, 1, 240 if 240 % width == 0 else 16 * width)
    assert (g.shuffles, g.held) == (shuffled, held)
