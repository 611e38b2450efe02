"""What quotas of control groups leave of a processor, read from files like the kernel's."""

from __future__ import annotations

import pytest

from brickrt.plan.device import cgroup
from brickrt.plan.device.cgroup import cpu_limit
from brickrt.plan.device.machine import core_count

TWO = {"a/cpu.max": "max 100000", "cpu.max": "200000 100000"}


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/", {"cpu.max": "max 100000"}, None),
        ("0::/", {"cpu.max": "150000 100000"}, 2),
        ("0::/a/b", TWO | {"a/b/cpu.max": "50000 100000"}, 1),
        ("0::/a/b", TWO, 2),
        ("0::/not/seen/in/here", {"cpu.max": "300000 100000"}, 3),
        ("4:memory:/x\n3:cpu,cpuacct:/x", {"cpu,cpuacct/x/cpu.cfs_quota_us": "400000"}, None),
        (
            "3:cpu,cpuacct:/x",
            {"cpu,cpuacct/x/cpu.cfs_quota_us": "400000", "cpu,cpuacct/x/cpu.cfs_period_us": "100000"},
            4,
        ),
        ("3:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("", {}, None),
    ],
)
def test_the_tightest_quota_counts(own, files, expected, tmp_path, monkeypatch):
    for name, text in files.items():
        file = tmp_path / "root" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(cgroup, "ROOT", tmp_path / "root")
    monkeypatch.setattr(cgroup, "OWN", tmp_path / "own")
    assert cpu_limit() == expected
    assert core_count(range(64)) == (expected or 64)
