"""Whether plans for this processor multiply by schemes, such as Strassen's."""

from __future__ import annotations

import pytest

from brickrt.plan.device.device_spec import host_device

needs_schemes = pytest.mark.skipif(
    host_device().narrow, reason="this processor has vectors of eight lanes, by which all products are direct"
)
