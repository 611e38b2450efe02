"""What calibration measures of a processor, and whether it can be right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from brickrt.runtime.cache.parse_json import is_figure

LEVELS = ("l2", "l3", "memory")
CLOCKS_GHZ = (0.3, 8.0)
VECTORS_PER_CYCLE = (0.2, 6.0)
BYTES_PER_CYCLE = (0.1, 256.0)
OVERHEAD_US = (0.001, 50.0)


@dataclass(frozen=True)
class CoreSpeeds:
    """What one core does in its best moments: cycles per ns, vectors multiplied and added per cycle, as many as that is
    where elements are paired (`ops/cpu/paired/`), and GB/s read and written by memory level."""

    clock_ghz: float
    vectors_per_cycle: float
    paired_per_cycle: float
    bandwidth: dict[str, float]

    @property
    def bytes_per_cycle(self) -> dict[str, float]:
        """Read and written, by memory level."""
        return {level: gbps / self.clock_ghz for level, gbps in self.bandwidth.items()}


@dataclass(frozen=True)
class Measured:
    """The speeds of a processor: of one `core`, and of all while all are busy, in GFLOP/s of each, in GB/s read and
    written by all together, by memory level, and in µs of a core per task."""

    core: CoreSpeeds
    peak_gflops_per_core: float
    bandwidth: dict[str, float]
    task_overhead_us: float

    def implausible(self) -> str | None:
        """Why the figures cannot be right; None where they can."""
        core = self.core
        if not _within(CLOCKS_GHZ, core.clock_ghz):
            return f"a clock of {core.clock_ghz:.3g} GHz"
        if not _within(VECTORS_PER_CYCLE, core.vectors_per_cycle):
            return f"{core.vectors_per_cycle:.3g} vectors multiplied and added per cycle"
        if not _within(VECTORS_PER_CYCLE, core.paired_per_cycle):
            return f"{core.paired_per_cycle:.3g} vectors with paired elements per cycle"
        for level, figure in core.bytes_per_cycle.items():
            if not _within(BYTES_PER_CYCLE, figure):
                return f"{figure:.3g} bytes per cycle from {level}"
        if not _within(OVERHEAD_US, self.task_overhead_us):
            return f"{self.task_overhead_us:.3g} µs a task"
        return None

    @staticmethod
    def of(entry: Any) -> Measured:
        """The figures of a JSON object. Raises ValueError where they are not positive numbers, each under its name."""
        names, core_names = set(Measured.__match_args__), set(CoreSpeeds.__match_args__)
        if not isinstance(entry, dict) or set(entry) != names:
            raise ValueError("no figures")
        core = entry["core"]
        if not isinstance(core, dict) or set(core) != core_names:
            raise ValueError("no figures of a core")
        levels = (entry["bandwidth"], core["bandwidth"])
        if any(not isinstance(level, dict) for level in levels) or not set(levels[0]) == set(levels[1]) <= set(LEVELS):
            raise ValueError("no figures of levels of memory")
        single = [group[name] for group in (entry, core) for name in group if name not in ("core", "bandwidth")]
        if not all(is_figure(n) and n > 0 for n in (*single, *levels[0].values(), *levels[1].values())):
            raise ValueError("figures that are no positive numbers")
        return Measured(**entry | {"core": CoreSpeeds(**core)})


def _within(limits: tuple[float, float], figure: float) -> bool:
    return limits[0] <= figure <= limits[1]
