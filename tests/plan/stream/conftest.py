"""What tests of streams' plans share."""

import pytest

from tests.support.cpu.described import plan_for

SPEEDS = {"l2": 100.0, "l3": 50.0, "memory": 20.0}  # GB/s


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen does not depend on the machine that tests it."""
    plan_for(monkeypatch, cores=2, l2=2**20, l3=2**25, bandwidth=SPEEDS, tiles=False)
