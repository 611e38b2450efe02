"""How long arithmetic and streams take one core, as modelled."""

from __future__ import annotations

from brickrt.plan.device.device_spec import DeviceSpec


def compute_us(vectors: float, device: DeviceSpec, share: float) -> float:
    """Multiply-adds of whole vectors, at a share of the peak."""
    return vectors * device.lanes * 2 / (device.peak_gflops_per_core * share * 1e3)


def read_us(nbytes: float, held: float, device: DeviceSpec) -> float:
    """Reading so many bytes, where `held` bytes stay together, while all cores do."""
    level, size = device.shared
    where = "l2" if held <= device.l2 else level if held <= size // 2 else "memory"
    return nbytes / (device.bandwidth_at(where, device.cores) / device.cores) / 1e3
