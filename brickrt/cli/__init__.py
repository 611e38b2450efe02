"""The command line: `brickrt`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

__all__ = ["main"]

BETWEEN_COLLECTIONS = 50_000
"""Objects more than are gone, at which Python looks for garbage: a command imports many that stay. At its usual 700
(2,000) it looked so often that a command took 0.07 s longer."""


def main(args: Sequence[str] | None = None) -> int:
    """See `entry.main`, whose imports take long enough to press Ctrl-C in."""
    if args is None:
        gc.set_threshold(BETWEEN_COLLECTIONS)
    try:
        from brickrt.cli import entry
    except KeyboardInterrupt:
        sys.stderr.write("brickrt: interrupted\n")
        return 130
    return entry.main(args)
