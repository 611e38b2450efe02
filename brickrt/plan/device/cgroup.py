"""How much of the processor the control groups of this process leave it, as containers and systemd set it on Linux."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def cpu_limit() -> int | None:
    """The cores that the quota of this process, or of a group around it, allows, rounded up; None without a quota."""
    shares = [share for folder in _groups() if (share := _share(folder)) is not None]
    return max(1, math.ceil(min(shares))) if shares else None


def _groups() -> Iterator[Path]:
    """The folders of the groups that the process is in, from its own outwards; of version 1 those that count time."""
    for line in read_text(OWN).splitlines() or ["0::/"]:
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        names = controllers.split(",")
        if number == "0" or "cpu" in names:
            base = ROOT / controllers if "cpu" in names else ROOT
            group = PurePosixPath(path.lstrip("/"))
            yield from (base / part for part in (group, *group.parents))


def _share(folder: Path) -> float | None:
    """Quota over period of one group, by version 2 or version 1."""
    quota, _, period = read_text(folder / "cpu.max").partition(" ")
    if not quota:
        quota, period = read_text(folder / "cpu.cfs_quota_us"), read_text(folder / "cpu.cfs_period_us")
    if not (quota.isdigit() and period.isdigit() and int(quota) and int(period)):
        return None  # "max", -1, or no such file
    return int(quota) / int(period)


def read_text(path: Path) -> str:
    """A system file's text; "" where the system has no such file or does not let it be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
