"""`harness.check` on boxes chosen so that few kernels are compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.types import TensorType
from tests.support.cpu.harness import HOST, check, random_boxes


def check_few(op: Op, arrays: Sequence[np.ndarray], isa: Isa = HOST, **how: Any) -> None:
    """An empty box, two random ones and the whole, which is compiled already when it runs in scratch."""
    shape = op.infer([TensorType(a.shape, a.dtype) for a in arrays]).shape
    whole, *others = random_boxes(shape, 2, how.get("out_block", 1))
    check(op, arrays, isa, boxes=[*others[:-1], whole, *others[-1:]], **how)
