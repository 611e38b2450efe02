"""ONNX's backend suite on the CPU engine, with the suite's own data and tolerances.

All of it but the models that must be downloaded; a test for a part, which is a module of cases or a folder of models.
What fails is listed, with the reason, in known_failures.toml.
"""

from __future__ import annotations

import tomllib
import unittest
from pathlib import Path
from unittest import mock

import pytest
from onnx.backend.test import runner
from onnx.backend.test.loader import load_model_tests

from brickrt.backend import BrickBackend
from tests.support.graphs.onnx_cases import PARTS, cases_of

KNOWN = tomllib.loads(Path(__file__).with_name("known_failures.toml").read_text())
FOLDERS = ["simple", "pytorch-converted", "pytorch-operator"]
ENOUGH = 190


def suite(part: str) -> dict[str, unittest.TestCase]:
    """The tests of a part for a CPU, by name."""
    of, cases = (part, load_model_tests(kind=part)) if part in FOLDERS else ("node", cases_of(part))
    with mock.patch.object(runner, "load_model_tests", lambda kind: cases if kind == of else []):
        classes = runner.Runner(BrickBackend).test_cases.values()
    names = [(case, name) for case in classes for name in unittest.defaultTestLoader.getTestCaseNames(case)]
    return {name: case(name) for case, name in names if name.endswith("_cpu")}


@pytest.mark.parametrize("part", [*FOLDERS, *PARTS])
def test_onnx(part: str) -> None:
    """A listed case must fail, unless chance decides."""
    fails, chance = (KNOWN[kind].get(part, {}) for kind in ("fails", "chance"))
    cases, wrong = suite(part), []
    assert cases and {*fails, *chance} <= set(cases)
    for name, case in cases.items():
        try:
            getattr(case, name)()
        except Exception as error:
            error.add_note(name)
            wrong += [error] if name not in fails and name not in chance else []
        else:
            wrong += [AssertionError(f"{name} passes, and is listed")] if name in fails else []
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} of {len(cases)} cases", wrong)


def test_all_parts_are_there() -> None:
    assert len(PARTS) >= ENOUGH
    assert {part for names in KNOWN.values() for part in names} <= {*FOLDERS, *PARTS}
