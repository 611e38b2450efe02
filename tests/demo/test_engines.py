"""The demo's engines, each in a process of its own."""

from __future__ import annotations

from brickrt.demo import photo
from brickrt.demo.engines import DemoPictures, EngineFigures, measure


def test_an_engine_is_measured_in_its_own_process(pictures):
    """All three are in tests/cli/commands/test_demo.py."""
    figures = measure("bricks", DemoPictures(pictures[0], pictures[1], threads=1, runs=2))
    assert isinstance(figures, EngineFigures), figures
    assert 0 < figures.ms["min"] <= figures.ms["median"] <= figures.ms["max"]
    assert figures.peak_bytes is None or 2**20 < figures.peak_bytes < 2**30
    assert figures.psnr > photo.psnr(pictures[1], pictures[0]) + 5


def test_an_engine_that_fails_says_why(pictures):
    told = measure("abacus", DemoPictures(pictures[0], pictures[1], threads=1, runs=1))
    assert isinstance(told, str) and told.startswith("failed: ") and "abacus" in told
