"""Maps and moves on boxes at random, which overlap, are empty, begin and end anywhere."""

from __future__ import annotations

import pytest

from brickrt.ops.base import Op
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import Concat, Reorder, Take, Transpose, View
from brickrt.ops.operators.sampling.interp import Interp
from tests.support.cuda.cases.kernel_cases import SUM, taps, values
from tests.support.cuda.host_kernels import needs_compiler
from tests.support.graphs.random_boxes import check_random_boxes

pytestmark = needs_compiler

SHAPE = (2, 12, 9, 14)
PAD = (-1, -1, *range(9), -1)
TWICE = tuple(k // 2 for k in range(28))


@pytest.mark.parametrize(
    ("op", "shapes", "layouts"),
    [
        (Map(SUM), [SHAPE, (12, 1, 1)], "lpl"),
        (Map(SUM), [SHAPE, SHAPE], "ppp"),
        (Reorder("last"), [SHAPE], "pl"),
        (Reorder("plain"), [SHAPE], "lp"),
        (Transpose((0, 3, 2, 1)), [SHAPE], "pp"),
        (View((24, 126)), [SHAPE], "pp"),
        (View((24, 126)), [SHAPE], "lp"),
        (Concat(1), [SHAPE, (2, 8, 9, 14), SHAPE], "lll"),
        (Concat(1), [SHAPE, SHAPE], "plp"),
        (Concat(3), [SHAPE, SHAPE], "ppp"),
        (Take((None, None, PAD, TWICE), 5), [SHAPE], "ll"),
        (Take((None, None, PAD, TWICE), 5), [SHAPE], "pp"),
        (Interp((None, None, taps(18, 2, 9), taps(28, 2, 14))), [SHAPE], "ll"),
        (Interp((None, None, taps(18, 2, 9), taps(28, 2, 14))), [SHAPE], "pp"),
    ],
)
def test_random_boxes(op: Op, shapes, layouts) -> None:
    names = [{"p": "plain", "l": "last"}[c] for c in layouts]
    check_random_boxes(op, [values(s) for s in shapes], names)
