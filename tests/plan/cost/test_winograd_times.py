"""Modelled times of Winograd's algorithms: of many boxes at once as of each alone."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from brickrt.ops.cpu.winograd.axes import known_axes
from brickrt.ops.operators.conv import Conv
from brickrt.plan.cost.winograd_times import CoreShare, winograd_us
from tests.plan.tiling.test_layer_tiles import SERVER

BOXES = [(1, 64, 8, 56), (2, 16, 3, 56), (1, 1, 1, 1), (1, 128, 56, 9), (3, 40, 17, 23)]
SHARES = {
    "stored": {},
    "paired": {"paired": True},
    "anew": {"raw_bytes": 4},
    "once": {"raw_bytes": 2, "once": True},
    "integers": {"raw_bytes": 1, "integers": True},
}


@pytest.mark.parametrize("how", SHARES)
@pytest.mark.parametrize("paces", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_many_boxes_take_what_each_takes_alone(how: str, paces: bool, stride: int):
    device = SERVER.__class__(**{**vars(SERVER), "paces_weights": paces})
    axes = known_axes(Conv((3, 3), (stride,) * 2, (1, 1), (1, 1), (1, 1)), (56, 56), 4)
    each = list(product(BOXES, [(1, 1), (4, 2), (7, 7)]))
    shares = [CoreShare(boxes, pieces, 1 << 24, **SHARES[how]) for _, (boxes, pieces) in each]
    alone = [winograd_us(axes, 48, box, device, share) for (box, _), share in zip(each, shares)]
    boxes, counts = np.array([box for box, _ in each]), np.array([count for _, count in each])
    both = winograd_us(axes, 48, boxes.T, device, CoreShare(counts[:, 0], counts[:, 1], 1 << 24, **SHARES[how]))
    np.testing.assert_array_equal(both, alone)
    assert all(math.isfinite(us) and us > 0 for us in alone)
