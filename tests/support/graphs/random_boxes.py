"""Boxes at random: kernels must be right for any box, and leave alone what none covers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.types import Boxes
from tests.support.cuda.host_kernels import expected, run_on_host


def random_boxes(shape: Sequence[int], count: int, seed: int) -> Boxes:
    """Boxes inside of the shape, which may overlap or be empty."""
    ends = np.sort(np.random.default_rng(seed).integers(0, np.asarray(shape) + 1, (2, count, len(shape))), axis=0)
    return Boxes(ends[0], ends[1])


def check_random_boxes(op: Op, arrays: Sequence[np.ndarray], layouts: Sequence[str], tolerance: float = 1e-5) -> None:
    """The output on 40 boxes, and the pattern everywhere else, with fewer threads than usual and with an odd number."""
    whole = expected(op, arrays).astype(np.float64)
    boxes = random_boxes(whole.shape, 40, seed=whole.size)
    covered = np.zeros(whole.shape, bool)
    for k in range(len(boxes)):
        covered[boxes.slices(k)] = True
    for threads, blocks in ((32, 1), (160, 2)):
        result = run_on_host(op, arrays, layouts, boxes=boxes, threads=threads, blocks=blocks).astype(np.float64)
        np.testing.assert_allclose(result[covered], whole[covered], rtol=tolerance, atol=tolerance * 10)
        assert (result[~covered] == 77).all()
