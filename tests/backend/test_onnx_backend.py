"""ONNX's backend suite on the CPU engine, with the suite's own data and tolerances.

All of it but the models that must be downloaded. What fails is listed, with the reason, in known_failures.toml.
"""

from __future__ import annotations

import tomllib
import unittest
import warnings
from functools import partial
from pathlib import Path

import pytest
from onnx.backend.test.runner import Runner

from tests.support.onnx_backend import BrickBackend

KNOWN = tomllib.loads(Path(__file__).with_name("known_failures.toml").read_text())
DOWNLOADED = "OnnxBackendRealModelTest"
ENOUGH = 1850

pytestmark = pytest.mark.timeout(120)


def suite() -> dict[str, type[unittest.TestCase]]:
    """The classes that have the suite's tests, by test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        classes = Runner(BrickBackend).test_cases
    return {
        name: case
        for group, case in classes.items()
        if group != DOWNLOADED
        for name in unittest.defaultTestLoader.getTestCaseNames(case)
        if name.endswith("_cpu")
    }


CASES = suite()


def parameter(name: str) -> object:
    """A listed test must fail, unless chance decides."""
    xfail = partial(pytest.mark.xfail, raises=Exception)
    fails, chance = KNOWN["fails"].get(name), KNOWN["chance"].get(name)
    marks = [xfail(reason=fails, strict=True)] if fails else [xfail(reason=chance, strict=False)] if chance else []
    return pytest.param(name, marks=marks, id=name.removeprefix("test_").removesuffix("_cpu"))


@pytest.mark.parametrize("name", [parameter(name) for name in sorted(CASES)])
def test_onnx(name: str) -> None:
    getattr(CASES[name](name), name)()


def test_enough_pass() -> None:
    listed = {name for names in KNOWN.values() for name in names}
    assert listed <= set(CASES)
    assert len(CASES) - len(listed) >= ENOUGH
