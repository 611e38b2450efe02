"""The speeds that plans are made with: coarse classes of what was measured, so that equal hardware has equal plans.

Speeds count per cycle of the core, which neither a changing clock nor a neighbour moves, and a class is far wider than
what is left of the noise. One clock for all processors makes times of them: plans compare times with each other, and
hardly depend on what they are in microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from brickrt.plan.device.device_spec import MEMORY_SCALING, DeviceSpec, typical_bandwidth
from brickrt.runtime.cpu.calibrate.measured import CoreSpeeds

CLOCK_GHZ = 3.0
TASK_US = (
    0.3  # 0.02 to 0.05 were measured, of tasks that find their records in their core's caches; plans hardly need it
)
REACHED = 0.5  # of the bandwidth below L2: kernels wait for lines, and fetch those that they only write
DOUBT = 1.15  # a figure that would be in a higher class if it were so many times larger may be one of that class


@dataclass(frozen=True)
class Classes:
    """The figures `middle · step^k`: each stands for all that are nearer to it than to the others, as ratios."""

    middle: float
    step: float

    def of(self, figure: float) -> float:
        """The figure that stands for this one."""
        return self.middle * self.step ** round(math.log(figure / self.middle, self.step))

    def doubtful(self, figure: float) -> bool:
        """Whether a figure that only disturbances lower may be one of a higher class."""
        return self.of(figure * DOUBT) > self.of(figure)


# Middles are where processors were found, so that they lie far from the ends of their class.
VECTORS = Classes(1.0, 2.0)  # multiplied and added per cycle: by one unit, by two, by four, or by half of one
L2_BYTES = Classes(30.0, 2.0)  # per cycle: Zen 4 reaches 28, Intel's servers 32
FAR_BYTES = Classes(6.0, 3.0)  # per cycle: 5 from a server's large L3, 8 from memory and 24 from L3 (Zen 4)
BYTES = {"l2": L2_BYTES, "l3": FAR_BYTES, "memory": FAR_BYTES}


def doubtful(core: CoreSpeeds) -> bool:
    """Whether measuring longer may still change what plans are made with."""
    levels = core.bytes_per_cycle.items()
    return VECTORS.doubtful(core.vectors_per_cycle) or any(BYTES[level].doubtful(n) for level, n in levels)


def planned(spec: DeviceSpec, core: CoreSpeeds) -> DeviceSpec:
    """The device as plans are made for it. A level of memory that was not measured has its typical bandwidth."""
    speeds = typical_bandwidth(spec.cores, spec.lanes, CLOCK_GHZ)
    for level, figure in core.bytes_per_cycle.items():
        cores = spec.cores**MEMORY_SCALING if level == "memory" else spec.cores
        speeds[level] = cores * (1.0 if level == "l2" else REACHED) * BYTES[level].of(figure) * CLOCK_GHZ
    return replace(
        spec,
        peak_gflops_per_core=2 * spec.lanes * VECTORS.of(core.vectors_per_cycle) * CLOCK_GHZ,
        bandwidth=_falling(speeds),
        core_bandwidth={},
        task_overhead_us=TASK_US,
    )


def _falling(speeds: Mapping[str, float]) -> dict[str, float]:
    """The same, where no level is faster than those before it: classes and typical figures may cross."""
    return {level: min(list(speeds.values())[: k + 1]) for k, level in enumerate(speeds)}
