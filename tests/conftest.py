"""Compiled kernels are kept for one run of the tests, unless BRICKRT_CACHE_DIR names a folder to keep them in."""

from __future__ import annotations

import os
import shutil
import tempfile

_made: list[str] = []


def pytest_configure() -> None:
    if "BRICKRT_CACHE_DIR" not in os.environ:
        _made.append(tempfile.mkdtemp(prefix="brickrt-tests-"))
        os.environ["BRICKRT_CACHE_DIR"] = _made[0]


def pytest_unconfigure() -> None:
    for folder in _made:
        shutil.rmtree(folder, ignore_errors=True)
