"""Numbers, bytes and times as people read them."""

from __future__ import annotations

import pytest

from brickrt.dashboard.units import count_text, size_text, time_text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (700 << 20, "700.0 MiB"),
        (3 << 29, "1.5 GiB"),
        (5 << 39, "2.5 TiB"),
    ],
)
def test_sizes(nbytes, text):
    assert size_text(nbytes) == text


@pytest.mark.parametrize(("n", "text"), [(7, "7"), (9999, "9999"), (13_920, "13.9k"), (2.5e6, "2.5M"), (4e10, "40.0G")])
def test_counts(n, text):
    assert count_text(n) == text


@pytest.mark.parametrize(("seconds", "text"), [(47.6, "48 s"), (182, "3 min 2 s"), (7500, "2 h 5 min")])
def test_times(seconds, text):
    assert time_text(seconds) == text
