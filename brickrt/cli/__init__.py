"""The command line: `brickrt`."""

from brickrt.cli.entry import main

__all__ = ["main"]
