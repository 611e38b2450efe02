"""Limits that a user sets by variables of the environment."""

from __future__ import annotations

import math
import os

from brickrt.graph.errors import BrickError

DEFAULT_LIMITS = {"BRICKRT_MEMORY_GIB": 0.5, "BRICKRT_RUN_SECONDS": 5.0, "BRICKRT_PREPARE_SECONDS": 10.0}


def environment_limit(variable: str) -> float:
    """What a variable allows, in the unit that its name ends in; infinity where it is 0. Raises BrickError for what is
    no number."""
    text = os.environ.get(variable) or str(DEFAULT_LIMITS[variable])
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not amount >= 0:
        raise BrickError(f"{variable} is {text!r}: give it a number, or 0 for no limit")
    return amount or math.inf
