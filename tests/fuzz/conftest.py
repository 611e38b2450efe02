"""One process runs the broken models of all tests here: it has limits, and may die of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.case_runner import CaseRunner


@pytest.fixture(scope="session")
def worker() -> Iterator[CaseRunner]:
    with CaseRunner(compared=True) as one:
        yield one
