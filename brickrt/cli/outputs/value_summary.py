"""Type, shape and range of output values."""

from __future__ import annotations

from typing import Any

import numpy as np

from brickrt.compare.difference import real_numbers

PART = 1 << 16  # values


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
    least, most = _ends(real)
    finite = np.isfinite(least) and np.isfinite(most)  # NaN, if there is one, is both ends
    nonfinite = 0 if finite else int(real.size - np.isfinite(real).sum())
    return entry | {"min": least.item(), "max": most.item(), "nonfinite": nonfinite}


def _ends(real: np.ndarray) -> tuple[np.generic, np.generic]:
    """The least and the greatest value, NaN where there is one; both are looked for while the cache has a part."""
    flat = real.reshape(-1)
    parts = [flat[k : k + PART] for k in range(0, flat.size, PART)]
    ends = [(part.min(), part.max()) for part in parts]
    return np.min([least for least, _ in ends]), np.max([most for _, most in ends])


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic):
        return "string" if value.dtype.kind in "OUS" else value.dtype.name
    if value is None:
        return "none"
    return "sequence" if isinstance(value, list) else "map" if isinstance(value, dict) else type(value).__name__
