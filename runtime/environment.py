"""Environment variables that engines and calibration read."""

from __future__ import annotations

import os

from brickrt.graph.errors import BrickError

MEASURING = "BRICKRT_CALIBRATE"
DEVICE = "BRICKRT_DEVICE"
CHECKED = "BRICKRT_CHECKED"
TUNING = "BRICKRT_TUNE_SECONDS"
USUAL_TUNE_SECONDS = 0.0
"""What choosing a plan on the CPU may take the first time that a network is met."""


def measures() -> bool:
    """Whether speeds of the device may be measured, for the cost model's figures and to compare plans."""
    return os.environ.get(MEASURING) != "0"


def usual_device() -> str:
    """The device that "auto" stands for; "auto" itself where the variable is not set."""
    return os.environ.get(DEVICE) or "auto"


def checked() -> bool:
    """Whether a GPU runs one launch at a time, one block each, so that after a fault the error names the brick."""
    return os.environ.get(CHECKED, "0") not in ("", "0")


def first_tune_seconds() -> float:
    """Seconds that plans of the CPU are measured for when a network is met for the first time; 0 where nothing may be
    measured. Raises BrickError where the variable is no number of seconds."""
    text = os.environ.get(TUNING) or str(USUAL_TUNE_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise BrickError(f"{TUNING} is {text!r}: give it a number of seconds, or 0 to take plans as modelled")
    return seconds if measures() else 0.0
