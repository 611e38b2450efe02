"""The least time that a network could take as it was planned: the longer of its arithmetic at the multiply-add peak
and its modelled traffic at the bandwidth of each memory level.

Arithmetic is that of direct convolutions: Winograd needs less, and may stay under the bound. A network that fits the
shared cache as a whole stays there between runs, and needs nothing from memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.runtime.session.runtime import Report


@dataclass(frozen=True)
class Roofline:
    """The two parts of the bound: arithmetic, and traffic by the level that the bytes come from ("l3", "memory")."""

    flops: int
    level_bytes: dict[str, int]
    compute_ms: float
    traffic_ms: dict[str, float]

    @property
    def bound_ms(self) -> float:
        """The longest part."""
        return max([self.compute_ms, *self.traffic_ms.values()])

    def to_dict(self, took_ms: float) -> dict[str, Any]:
        """For JSON; `over` is the measured time, `took_ms`, over the bound."""
        return vars(self) | {"bound_ms": self.bound_ms, "over": took_ms / self.bound_ms if self.bound_ms else None}


def roofline(report: Report, spec: DeviceSpec, threads: int) -> Roofline:
    """The bound for what a runtime ran last on this device, with a core for each thread but no more than there are."""
    cores = min(threads, spec.cores)
    flops = sum(s.flops for plan in report.plans for s in plan.subgraphs)
    below = bytes_from(report.stats.level_bytes, spec)
    if report.projected_bytes <= spec.shared[1]:
        below["memory"] = 0
    return Roofline(
        flops=flops,
        level_bytes=below,
        compute_ms=flops / (spec.peak_gflops_per_core * cores) / 1e6,
        traffic_ms={level: n / spec.bandwidth_at(level, cores) / 1e6 for level, n in below.items()},
    )


def bytes_from(level_bytes: Mapping[str, int], spec: DeviceSpec) -> dict[str, int]:
    """Bytes by the level that they come from; `level_bytes` has them by the level that did not hold them."""
    levels = ["l2", *([spec.shared[0]] if spec.shared[0] != "l2" else []), "memory"]
    return {below: level_bytes[level] for level, below in pairwise(levels) if level in level_bytes}
