"""What the environment decides."""

from __future__ import annotations

import os

MEASURING = "BRICKRT_CALIBRATE"
DEVICE = "BRICKRT_DEVICE"


def measures() -> bool:
    """Whether the device may be measured, for figures of the cost model and between plans."""
    return os.environ.get(MEASURING) != "0"


def usual_device() -> str:
    """The device that "auto" stands for; "auto" where that is not said."""
    return os.environ.get(DEVICE) or "auto"
