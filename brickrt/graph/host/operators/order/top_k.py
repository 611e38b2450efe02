"""TopK of many elements, which ONNX's reference puts in order one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from brickrt.graph.host.operators.order.greatest_elements import greatest_elements


class TopK(OpRun):
    """The greatest or least elements along an axis, and where they are; up to opset 9 their number is an attribute."""

    op_domain = ""

    def _run(self, x, k=None, axis=-1, largest=1, **_: Any):
        count = int(np.asarray(k).reshape(-1)[0])
        extent = x.shape[axis] if x.ndim else 0
        if not 0 <= count <= extent:
            raise ValueError(f"{count} of {extent} elements are asked for along axis {axis}")
        return greatest_elements(x, count, axis, bool(largest))
