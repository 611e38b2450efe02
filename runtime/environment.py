"""Environment variables that engines and calibration read."""

from __future__ import annotations

import os

MEASURING = "BRICKRT_CALIBRATE"
DEVICE = "BRICKRT_DEVICE"


def measures() -> bool:
    """Whether speeds of the device may be measured, for the cost model's figures and to compare plans."""
    return os.environ.get(MEASURING) != "0"


def usual_device() -> str:
    """The device that "auto" stands for; "auto" itself where the variable is not set."""
    return os.environ.get(DEVICE) or "auto"
