"""Type, shape and range of output values."""

from __future__ import annotations

from typing import Any

import numpy as np

from brickrt.compare.difference import real_numbers


def value_summary(name: str, value: Any) -> dict[str, Any]:
    """Name, type, shape and range of one output; `nonfinite` counts its NaNs and infinities."""
    entry: dict[str, Any] = {"name": name, "type": _kind(value), "shape": None, "min": None, "max": None}
    if isinstance(value, list):
        return entry | {"items": [value_summary(f"{name}.{k}", item) for k, item in enumerate(value)]}
    if not isinstance(value, np.ndarray | np.generic):
        return entry
    array = np.asarray(value)
    entry["shape"] = list(array.shape)
    real = real_numbers(array)
    if real is None or not real.size:
        return entry
    nonfinite = int(real.size - np.isfinite(real).sum())
    return entry | {"min": real.min().item(), "max": real.max().item(), "nonfinite": nonfinite}


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic):
        return "string" if value.dtype.kind in "OUS" else value.dtype.name
    if value is None:
        return "none"
    return "sequence" if isinstance(value, list) else "map" if isinstance(value, dict) else type(value).__name__
