"""The least time that a network could take as it was planned: the longest of its products at the peak of the processor
and of the bytes that must come from each memory level (`runtime/analysis/least_time.py`).

A network that fits the shared cache as a whole stays there between runs, and needs nothing from memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.runtime.analysis.least_time import ARITHMETIC, least_bytes, least_us, least_work
from brickrt.runtime.session.runtime import Report


@dataclass(frozen=True)
class Roofline:
    """The parts of the bound: arithmetic, and traffic by the level that the bytes come from ("l3", "memory").

    `operations` are those that run: of Winograd's and Strassen's algorithms where layers are computed by these.
    """

    operations: float
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
    work = [each for program in report.programs for each in least_work(program.tasks)]
    times = {name: us / 1e3 for name, us in least_us(work, spec, threads).items()}
    return Roofline(
        operations=sum(each.operations for each in work),
        level_bytes=least_bytes(work, spec),
        compute_ms=times.pop(ARITHMETIC),
        traffic_ms=times,
    )
