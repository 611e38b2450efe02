"""How long arithmetic and reading take one core, as modelled, and both together."""

from __future__ import annotations

import numpy as np

from brickrt.plan.cost.constants import HIDDEN
from brickrt.plan.device.device_spec import DeviceSpec


def products_at_a_time(dtype: np.dtype, device: DeviceSpec) -> int:
    """How many products of elements of a type a lane adds in the time of one in float32."""
    if dtype == np.uint8:
        return device.byte_products
    return device.bfloat16_products if dtype.name == "bfloat16" else 1


def compute_us(vectors: float, device: DeviceSpec, share: float) -> float:
    """Time of so many multiply-adds of whole vectors at a share of the peak."""
    return vectors * device.lanes * 2 / (device.peak_gflops_per_core * share * 1e3)


def read_us(nbytes: float, held: float, device: DeviceSpec) -> float:
    """Time to read so many bytes while all cores do, from the cache that `held` bytes stay in, or from memory."""
    level, size = device.shared
    where = "l2" if held <= device.l2 else level if held <= size // 2 else "memory"
    return nbytes / (device.bandwidth_at(where, device.cores) / device.cores) / 1e3


def reads_us(nbytes: np.ndarray, held: np.ndarray, device: DeviceSpec) -> np.ndarray:
    """`read_us` of many at once, [n]."""
    level, size = device.shared
    near, shared, far = (
        nbytes / (device.bandwidth_at(where, device.cores) / device.cores) / 1e3 for where in ("l2", level, "memory")
    )
    return np.where(held <= device.l2, near, np.where(held <= size // 2, shared, far))


def overlapped_us(arithmetic: float, traffic: float, shown: float = HIDDEN) -> float:
    """Time of both together: the longer counts whole, of the shorter a share is not hidden."""
    return max(arithmetic, traffic) + shown * min(arithmetic, traffic)
