"""The speeds of the host, measured once and kept on disk: they replace the table's figures in its `DeviceSpec`.

Plans are made with coarse classes of them (`planned_speeds.py`). Where a measurement is not plausible, or cannot be
kept, the table's figures stay. BRICKRT_CALIBRATE=0 turns measuring off.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.runtime.cache.disk_cache import DiskCache, cache_root, sources_digest
from brickrt.runtime.cache.parse_json import parse_json
from brickrt.runtime.cpu.calibrate.measure_apart import measure_apart
from brickrt.runtime.cpu.calibrate.measured import Measured
from brickrt.runtime.cpu.calibrate.planned_speeds import one_a_cycle, pairs, planned
from brickrt.runtime.environment import MEASURING, measures
from brickrt.version import VERSION


@dataclass(frozen=True)
class Calibration:
    """What was measured. `refused` says why the table's figures are used instead; None where they are not."""

    measured: Measured | None
    refused: str | None = None

    def applied(self, spec: DeviceSpec) -> DeviceSpec:
        """The device with what was measured in place of the table's figures."""
        found = self.usable
        if found is None:
            return spec
        return replace(
            spec,
            peak_gflops_per_core=found.peak_gflops_per_core,
            bandwidth={**spec.bandwidth, **found.bandwidth},
            core_bandwidth=found.core.bandwidth,
            one_a_cycle=one_a_cycle(found.core),
            pairs=pairs(found.core),
            task_overhead_us=found.task_overhead_us,
        )

    def planned(self, spec: DeviceSpec) -> DeviceSpec:
        """The device as plans are made for it."""
        return planned(spec, self.usable.core) if self.usable else spec

    @property
    def usable(self) -> Measured | None:
        """The figures, where they are not refused."""
        return self.measured if self.refused is None else None


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
        return _read(kept) if kept is not None else None
    return None


def _measured(spec: DeviceSpec) -> Calibration:
    found = measure_apart(spec)
    return Calibration(found, found.implausible())


def _store() -> DiskCache:
    return DiskCache.open("calibration")


def _name(spec: DeviceSpec) -> str:
    """What decides the speeds: the processor, its cores and caches, and the code that measures."""
    machine = spec.name, spec.isa, spec.cores, spec.l1, spec.l2, spec.l3
    return hashlib.sha256(repr((machine, VERSION, _code())).encode()).hexdigest()[:32]


@cache
def _code() -> str:
    return sources_digest(Path(__file__).parent)


def _text(found: Calibration) -> bytes:
    return json.dumps(asdict(found)).encode()


def _read(kept: bytes) -> Calibration:
    """The calibration of a text of `_text`. Raises ValueError for any other, and for figures that cannot be right."""
    entry = parse_json(kept)
    if not isinstance(entry, dict) or entry.keys() != {"measured", "refused"}:
        raise ValueError("no calibration")
    found = Calibration(Measured.of(entry["measured"]), entry["refused"])
    if not isinstance(found.refused, str | None) or (found.usable and found.usable.implausible()):
        raise ValueError("figures that cannot be right, or no reason")
    return found
