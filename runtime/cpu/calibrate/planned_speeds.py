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
    """`figure · step^k` stands for all figures from `lowest · step^k` up to the next class."""

    figure: float
    step: float
    lowest: float

    def of(self, figure: float) -> float:
        """The figure that stands for this one."""
        return self.figure * self.step ** math.floor(math.log(figure / self.lowest, self.step))

    def doubtful(self, figure: float) -> bool:
        """Whether a figure that only disturbances lower may be one of a higher class."""
        return self.of(figure * DOUBT) > self.of(figure)


# Processors that were measured lie far from the ends of their class. What stands for one keeps ratios of peak and
# bandwidth near those that made fast plans on them.
VECTORS = Classes(1.0, 2.0, lowest=0.7)  # multiplied and added per cycle: by one unit, two, four, or half of one
BYTES = {
    "l2": Classes(30.0, 2.0, lowest=21.0),  # per cycle: Zen 4 reaches 28, Intel's servers 32
    "l3": Classes(5.0, 4.0, lowest=2.5),  # a server's share of a large L3 gives 5, the L3 of Zen 4 24
    "memory": Classes(8.0, 4.0, lowest=3.0),  # Intel's servers give 4.6, Zen 4 8 to 9.3
}


PAIRS = 1.2  # times as fast as multiply-adds: from there on elements are paired. Zen 4 reaches 1.4 by 512 bits


def pairs(core: CoreSpeeds) -> bool:
    """Whether a core is so much faster with paired elements of K than the class of its multiply-adds, which is the same
    for equal cores."""
    return core.paired_per_cycle >= PAIRS * VECTORS.of(core.vectors_per_cycle)


def one_a_cycle(core: CoreSpeeds) -> bool:
    """Whether a core multiplies and adds one vector a cycle, or fewer."""
    return VECTORS.of(core.vectors_per_cycle) <= 1


def doubtful(core: CoreSpeeds) -> bool:
    """Whether measuring longer may still change what plans are made with."""
    levels = core.bytes_per_cycle.items()
    faster = replace(core, paired_per_cycle=DOUBT * core.paired_per_cycle)
    units = VECTORS.doubtful(core.vectors_per_cycle) or pairs(faster) > pairs(core)
    return units or any(BYTES[level].doubtful(n) for level, n in levels)


def planned(spec: DeviceSpec, core: CoreSpeeds) -> DeviceSpec:
    """The device as plans are made for it. A level of memory that was not measured has its typical bandwidth."""
    speeds = typical_bandwidth(spec.cores, spec.lanes, CLOCK_GHZ)
    for level, figure in core.bytes_per_cycle.items():
        cores = spec.cores**MEMORY_SCALING if level == "memory" else spec.cores
        speeds[level] = cores * (1.0 if level == "l2" else REACHED) * BYTES[level].of(figure) * CLOCK_GHZ
    vectors = VECTORS.of(core.vectors_per_cycle)
    return replace(
        spec,
        peak_gflops_per_core=2 * spec.lanes * vectors * CLOCK_GHZ,
        one_a_cycle=one_a_cycle(core),
        bandwidth=_falling(speeds, spec),
        core_bandwidth={},
        pairs=pairs(core),
        task_overhead_us=TASK_US,
    )


def _falling(speeds: Mapping[str, float], spec: DeviceSpec) -> dict[str, float]:
    """The same, where memory is not faster than the L3 before it: a class and a typical figure may cross."""
    return dict(speeds) | ({"memory": min(speeds["l3"], speeds["memory"])} if spec.l3 else {})
