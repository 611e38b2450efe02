"""Plans for a CPU with caches and units as a test describes them, so that the test means the same on any machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from brickrt.plan.device import device_spec
from brickrt.plan.device.device_spec import host_device
from brickrt.runtime import engines


def plan_for(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """From now on the CPU's engine, and who plans alone, plan for this machine with other `fields` of its
    `DeviceSpec`."""
    for module in (engines, device_spec):
        monkeypatch.setattr(module, "host_device", lambda isa=None: replace(host_device(isa), **fields))
