"""What quantizing a model takes beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

Method = Literal["minmax", "entropy", "percentile"]
"""How ranges come from what calibration sees: all of it; what keeps most of the information; all but a hundred
thousandth of the values."""
Samples = Sequence[Mapping[str, np.ndarray]]
"""Inputs by name, of several runs. An element is asked for when it is needed, several times in all."""
