"""Tests of the zoo have the weights that users have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from brickrt.zoo import weights

DRAWN = weights.normal


@pytest.fixture(scope="module", autouse=True)
def _weights_are_drawn() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "normal", DRAWN)
        yield
