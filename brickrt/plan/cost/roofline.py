"""How long arithmetic and reading take one core, as modelled, and both together: of one amount, or of many at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from brickrt.plan.cost.constants import UNHIDDEN_SHARE
from brickrt.plan.device.device_spec import DeviceSpec

Amount = Any
"""A number, or an array of them: formulas of these give the like."""


def products_at_a_time(dtype: np.dtype, device: DeviceSpec) -> int:
    """How many products of elements of a type a lane adds in the time of one in float32."""
    if dtype == np.uint8:
        return device.byte_products
    return device.bfloat16_products if dtype.name == "bfloat16" else 1


def compute_us(vectors: float, device: DeviceSpec, share: float) -> float:
    """Time of so many multiply-adds of whole vectors at a share of the peak."""
    return vectors * device.lanes * 2 / (device.peak_gflops_per_core * share * 1e3)


def read_us(nbytes: Amount, held: Amount, device: DeviceSpec) -> Amount:
    """Time to read so many bytes while all cores do, from the cache that `held` bytes stay in, or from memory."""
    level, size = device.shared
    if isinstance(nbytes, np.ndarray) or isinstance(held, np.ndarray):
        near, shared, far = (nbytes / _core_gbps(where, device) / 1e3 for where in ("l2", level, "memory"))
        return np.where(held <= device.l2, near, np.where(held <= size // 2, shared, far))
    where = "l2" if held <= device.l2 else level if held <= size // 2 else "memory"
    return nbytes / _core_gbps(where, device) / 1e3


def _core_gbps(level: str, device: DeviceSpec) -> float:
    return device.bandwidth_at(level, device.cores) / device.cores


def overlapped_us(arithmetic: Amount, traffic: Amount, shown: float = UNHIDDEN_SHARE) -> Amount:
    """Time of both together: the longer counts whole, of the shorter a share is not hidden."""
    return larger(arithmetic, traffic) + shown * smaller(arithmetic, traffic)


def larger(a: Amount, b: Amount) -> Amount:
    """The larger of two amounts, each of many."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.maximum(a, b)
    return a if a > b else b


def smaller(a: Amount, b: Amount) -> Amount:
    """The smaller of two amounts, each of many."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.minimum(a, b)
    return a if a < b else b


def either(condition: Any, a: float, b: float) -> Amount:
    """`a` where a condition holds, of which there may be many, else `b`."""
    return np.where(condition, a, b) if isinstance(condition, np.ndarray) else a if condition else b
