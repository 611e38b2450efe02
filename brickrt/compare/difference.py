"""How far two values are apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

COUNTS = "compared", "nonfinite"


def difference(mine: Any, reference: Any) -> dict[str, float]:
    """Largest absolute error, and the largest by its output's largest reference value; infinite where they cannot be
    compared.

    `compared` counts the elements that are finite on both sides, `nonfinite` the others: where one is NaN the
    other must be, and that says little.
    """
    if isinstance(mine, list) and isinstance(reference, list) and len(mine) == len(reference):
        errors = [_error(0.0, 1.0), *(difference(a, b) for a, b in zip(mine, reference))]
        return {key: (sum if key in COUNTS else max)(error[key] for error in errors) for key in errors[0]}
    a, b = (_comparable(v) for v in (mine, reference))
    if a is None or b is None or a.shape != b.shape:
        return _error(0.0 if _same(mine, reference) else np.inf, 1.0)
    equal = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.where(equal, 0.0, np.abs(a - b))
    apart[np.isnan(apart)] = np.inf
    finite = int(np.count_nonzero(np.isfinite(a) & np.isfinite(b)))
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    return _error(float(apart.max(initial=0.0)), scale, finite, a.size - finite)


def compares_nothing(found: Mapping[str, float]) -> bool:
    """Whether a difference is of elements that are not finite alone: it is 0 then, and means nothing."""
    return found["nonfinite"] > 0 and not found["compared"]


def _error(largest: float, scale: float, compared: int = 0, nonfinite: int = 0) -> dict[str, float]:
    relative = largest / scale if scale else largest
    return {"max_abs_error": largest, "max_rel_error": relative, "compared": compared, "nonfinite": nonfinite}


def _same(mine: Any, reference: Any) -> bool:
    if isinstance(mine, np.ndarray) and isinstance(reference, np.ndarray):
        return np.array_equal(mine, reference)
    return type(mine) is type(reference) and mine == reference


def _comparable(value: Any) -> np.ndarray | None:
    """Numbers of at least double precision."""
    if not isinstance(value, np.ndarray | np.generic):
        return None
    array = np.asarray(value)
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    real = real_numbers(array)
    return None if real is None else real.astype(np.float64)


def real_numbers(array: np.ndarray) -> np.ndarray | None:
    """The array as numbers that NumPy itself knows; None where they have no order."""
    if array.dtype.kind in "biuf":
        return array
    return array.astype(np.float32) if array.dtype.kind == "V" and array.dtype.names is None else None
