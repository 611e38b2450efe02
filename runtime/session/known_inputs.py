"""Inputs like those of an earlier call, which were checked: to check them again takes longer than a layer of a small
network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class KnownInputs:
    """The names, shapes and types of inputs, in the model's order. Only arrays of NumPy's are known."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        """`values` are those of a call, as `check_inputs` returned them."""
        known = all(type(array) is np.ndarray for array in values.values())
        self._kinds = [(name, array.shape, array.dtype) for name, array in values.items()] if known else None

    def taken(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray] | None:
        """The inputs in the model's order; None for any that are other than those, which are to be checked."""
        if self._kinds is None or type(inputs) is not dict or len(inputs) != len(self._kinds):
            return None
        found: dict[str, np.ndarray] = {}
        for name, shape, dtype in self._kinds:
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype:
                return None
            if not array.flags.c_contiguous:
                return None
            found[name] = array
        return found
