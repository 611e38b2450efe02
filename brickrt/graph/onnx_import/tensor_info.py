"""What a model says about one of its tensors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class TensorInfo(NamedTuple):
    """What a model says about one of its tensors.

    `dtype` is None for what is no dense tensor (a sequence, an optional, a map); `shape` is None where the rank is
    open; a dimension is a number, the name of a symbol, or None.
    """

    dtype: np.dtype | None
    shape: tuple[int | str | None, ...] | None
