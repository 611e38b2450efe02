"""The speeds of the host, measured once and kept on disk: they replace the table's figures in its `DeviceSpec`.

Plans are made with figures rounded to powers of `STEP`, so that they do not depend on the third digit. Where a
measurement is not plausible, or cannot be kept, the table's figures stay. BRICKRT_CALIBRATE=0 turns measuring off.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.runtime.cache.disk_cache import DiskCache, cache_root
from brickrt.runtime.cache.parse_json import is_figure, parse_json
from brickrt.runtime.cpu.calibrate import microbenchmarks as measuring
from brickrt.runtime.cpu.calibrate import probe_loops
from brickrt.runtime.cpu.calibrate.microbenchmarks import LEVELS, Measured, measure
from brickrt.runtime.environment import MEASURING, measures
from brickrt.version import VERSION

STEP = 1.25
ATTEMPTS = 3  # a busy machine may make sense a moment later
CYCLES = (0.4e9, 6e9)  # per second, between which a clock is plausible
PER_CORE = {"l2": (4.0, 800.0), "l3": (2.0, 400.0), "memory": (0.5, 400.0)}  # GB/s of one core that are plausible
SCALING = {"l2": 0.7, "l3": 0.5, "memory": 0.0}  # least share of so many times one core's speed that cores reach
LINEAR_CORES = 4  # up to which a shared cache is expected to scale
OVERHEAD_US = (0.001, 50.0)
REACHED = 0.5  # of the bandwidth below L2: kernels wait for lines, and fetch those that they only write
COLD_US = 0.25  # of a task's overhead: unlike those measured, it finds its records and states in other caches


@dataclass(frozen=True)
class Calibration:
    """What was measured. `refused` says why the table's figures are used instead; None where they are not."""

    measured: Measured | None
    refused: str | None = None

    def applied(self, spec: DeviceSpec) -> DeviceSpec:
        """The device with what was measured in place of the table's figures."""
        return self._with(spec, float, 1.0)

    def planned(self, spec: DeviceSpec) -> DeviceSpec:
        """The device as plans are made for it: rounded figures, and the share of the bandwidth that kernels reach."""
        return self._with(spec, _coarse, REACHED)

    def _with(self, spec: DeviceSpec, about: Callable[[float], float], reached: float) -> DeviceSpec:
        found = self.measured
        if found is None or self.refused is not None:
            return spec

        def speeds(measured: Mapping[str, float]) -> dict[str, float]:
            return {level: about(v * (1.0 if level == "l2" else reached)) for level, v in measured.items()}

        return replace(
            spec,
            peak_gflops_per_core=about(found.peak_gflops_per_core),
            bandwidth={**spec.bandwidth, **speeds(found.bandwidth)},
            core_bandwidth=speeds(found.core_bandwidth),
            task_overhead_us=about(COLD_US + found.task_overhead_us),
        )


def calibrated(spec: DeviceSpec) -> DeviceSpec:
    """The host's device with measured figures, as plans are made for it."""
    return calibration(spec).planned(spec)


def measured(spec: DeviceSpec) -> DeviceSpec:
    """The host's device with the figures as they were measured."""
    return calibration(spec).applied(spec)


def calibration(spec: DeviceSpec, again: bool = False) -> Calibration:
    """What is known of the host, measured where nothing is, or `again`."""
    if not measures():
        return Calibration(None, f"{MEASURING}=0")
    if spec.isa == "generic":
        return Calibration(None, "no multiply-add instruction")
    if again:
        _remembered.cache_clear()
        _store().put(_name(spec), _text(_measured(spec)))
    return _remembered(spec, cache_root())


@cache
def _remembered(spec: DeviceSpec, root: Path) -> Calibration:
    """From disk. What cannot be kept there is not used: plans would differ from one process to the next."""
    if (known := _kept(spec)) is not None:
        return known
    found = _text(_measured(spec))
    if (known := _kept(spec)) is not None:  # another process was faster
        return known
    _store().put(_name(spec), found)
    return _kept(spec) or Calibration(None, f"{_store().folder} cannot be written")


def _kept(spec: DeviceSpec) -> Calibration | None:
    """What is on disk, where it makes sense."""
    kept = _store().get(_name(spec))
    with suppress(ValueError):
        return _read(kept, spec) if kept is not None else None
    return None


def _measured(spec: DeviceSpec) -> Calibration:
    found = Calibration(None, "not measured")
    for _ in range(ATTEMPTS):
        figures = measure(spec)
        found = Calibration(figures, implausible(figures, spec))
        if found.refused is None:
            break
    return found


def implausible(found: Measured, spec: DeviceSpec) -> str | None:
    """Why the figures cannot be right; None where they can."""
    if not found.steady:
        return "the machine was busy: repetitions differed"
    slowest, fastest = (2 * spec.lanes * hertz / 1e9 for hertz in CYCLES)
    if not slowest <= found.peak_gflops_per_core <= 2 * fastest:
        return f"a multiply-add peak of {found.peak_gflops_per_core:.3g} GFLOP/s a core"
    for level in found.bandwidth:
        alone, together = found.core_bandwidth[level], found.bandwidth[level]
        low, high = PER_CORE[level]
        least = max(0.7, SCALING[level] * min(spec.cores, LINEAR_CORES)) * alone
        if not low <= alone <= high or not least <= together <= 1.5 * spec.cores * alone:
            return f"{alone:.3g} GB/s of one core and {together:.3g} of all from {level}"
    speeds = [found.bandwidth[level] for level in LEVELS if level in found.bandwidth]
    if any(near < 0.9 * far for near, far in pairwise(speeds)):
        return "a level that is slower than the one behind it"
    if not OVERHEAD_US[0] <= found.task_overhead_us <= OVERHEAD_US[1]:
        return f"{found.task_overhead_us:.3g} µs a task"
    return None


def _coarse(figure: float) -> float:
    return float(f"{STEP ** round(math.log(figure) / math.log(STEP)):.4g}")


def _store() -> DiskCache:
    return DiskCache.open("calibration")


def _name(spec: DeviceSpec) -> str:
    """What decides the speeds: the processor, its cores and caches, and the code that measures."""
    machine = spec.name, spec.isa, spec.cores, spec.l1, spec.l2, spec.l3
    code = [Path(str(file)).read_text() for file in (__file__, measuring.__file__, probe_loops.__file__)]
    return hashlib.sha256(repr((machine, VERSION, code)).encode()).hexdigest()[:32]


def _text(found: Calibration) -> bytes:
    return json.dumps(asdict(found)).encode()


def _read(kept: bytes, spec: DeviceSpec) -> Calibration:
    """The calibration of a text of `_text`. Raises ValueError for any other, and for figures that cannot be right."""
    entry = parse_json(kept)
    if not isinstance(entry, dict) or entry.keys() != {"measured", "refused"}:
        raise ValueError("no calibration")
    figures, refused = _figures(entry["measured"]), entry["refused"]
    why = implausible(figures, spec) if refused is None else None
    if why is not None or not isinstance(refused, str | None):
        raise ValueError(why or "no reason")
    return Calibration(figures, refused)


def _figures(entry: Any) -> Measured:
    """Positive numbers, each under its name. Raises ValueError for others."""
    if not isinstance(entry, dict) or set(entry) != set(Measured.__match_args__):
        raise ValueError("no figures")
    levels = [entry["bandwidth"], entry["core_bandwidth"]]
    if any(not isinstance(level, dict) for level in levels) or not set(levels[0]) == set(levels[1]) <= set(LEVELS):
        raise ValueError("no figures of levels of memory")
    numbers = [entry["peak_gflops_per_core"], entry["task_overhead_us"], *levels[0].values(), *levels[1].values()]
    if not all(is_figure(n) and n > 0 for n in numbers) or type(entry["steady"]) is not bool:
        raise ValueError("figures that are no positive numbers")
    return Measured(**entry)
