"""The command line: `brickrt`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """See `entry.main`, whose imports take long enough to press Ctrl-C in."""
    try:
        from brickrt.cli import entry
    except KeyboardInterrupt:
        sys.stderr.write("brickrt: interrupted\n")
        return 130
    return entry.main(args)
