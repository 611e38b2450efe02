"""Environment variables that engines and calibration read."""

from __future__ import annotations

import os

MEASURING = "BRICKRT_CALIBRATE"
DEVICE = "BRICKRT_DEVICE"
CHECKED = "BRICKRT_CHECKED"


def measures() -> bool:
    """Whether speeds of the device may be measured, for the cost model's figures and to compare plans."""
    return os.environ.get(MEASURING) != "0"


def usual_device() -> str:
    """The device that "auto" stands for; "auto" itself where the variable is not set."""
    return os.environ.get(DEVICE) or "auto"


def checked() -> bool:
    """Whether a GPU runs one launch at a time, one block each, so that after a fault the error names the brick."""
    return os.environ.get(CHECKED, "0") not in ("", "0")
