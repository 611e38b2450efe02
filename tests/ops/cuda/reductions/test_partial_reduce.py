"""Partial reductions on the host, against their definition: the first step of a reduction over a large image."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.operators.partial_reduce import PartialReduce
from brickrt.ops.types import Boxes
from tests.ops.cuda.reductions.test_reduce import F32, check, values
from tests.support.cuda.host_kernels import needs_compiler

pytestmark = needs_compiler


@pytest.mark.parametrize(
    ("combine", "shape", "length", "layout"),
    [("sum", (2, 37, 3, 19), 8, "last"), ("max", (1, 8, 2, 5), 16, "last"), ("prod", (1, 20, 33), 11, "plain")],
)
def test_segments(combine, shape, length, layout):
    """The last segment is shorter, and boxes are uneven."""
    op = PartialReduce(combine, length)
    end = np.array([*shape[:-1], -(-shape[-1] // length)])
    first = np.array([*end[:-1], 1])
    start, rest = np.zeros_like(end), np.array([*[0] * (len(end) - 1), 1])
    boxes = Boxes(np.stack([start, rest]), np.stack([first, end]))
    check(op, [values(shape, F32)], [layout, layout], boxes=boxes)
