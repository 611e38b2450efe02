"""The demo's photograph."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.demo import photo


@pytest.fixture(scope="session")
def pictures() -> tuple[np.ndarray, np.ndarray]:
    """Clean and noisy, of the size that the photograph has."""
    clean = photo.photograph(512)
    return clean, photo.noisy(clean, 0)
