"""Lets the tests of this folder import the graphs and models that other tests draw."""

import sys
from pathlib import Path

for folder in ("plan", "graph", "runtime"):
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))
