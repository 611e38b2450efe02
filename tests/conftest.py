"""Compiled kernels are kept for one run of the tests, unless BRICKRT_CACHE_DIR names a folder to keep them in.

Plans are made with the table's speeds, not with measured ones, so that they are the same in every run.
"""

from __future__ import annotations

import os
import shutil
import tempfile

_made: list[str] = []


def pytest_configure() -> None:
    os.environ["BRICKRT_CALIBRATE"] = "0"
    os.environ["BRICKRT_DEVICE"] = "cpu"
    if "BRICKRT_CACHE_DIR" not in os.environ:
        _made.append(tempfile.mkdtemp(prefix="brickrt-tests-"))
        os.environ["BRICKRT_CACHE_DIR"] = _made[0]


def pytest_unconfigure() -> None:
    for folder in _made:
        shutil.rmtree(folder, ignore_errors=True)
