"""Lets the tests of this folder import the graphs that the planner's tests draw."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "plan"))
