"""What the environment turns off."""

from __future__ import annotations

import os

MEASURING = "BRICKRT_CALIBRATE"


def measures() -> bool:
    """Whether the device may be measured, for figures of the cost model and between plans."""
    return os.environ.get(MEASURING) != "0"
