"""One value put into the first operand of an operator."""

import numpy as np

from brickrt.ops.base import evaluate_whole


def with_outlier(op, given, value, place):
    """The operands with `value` at a place of the first; the outputs in float64 without it, and with it."""
    given = [a.copy() for a in given]
    wide = [a.astype(np.float64) for a in given]
    before = evaluate_whole(op, wide)
    given[0][place] = wide[0][place] = value
    with np.errstate(invalid="ignore"):
        return given, before, evaluate_whole(op, wide)
