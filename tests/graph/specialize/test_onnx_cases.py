"""Every node test case that ONNX has, through load, specialize and the NumPy definitions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

from brickrt.graph.onnx_import.source import load
from tests.support.graphs.by_definition import run_model

SKIPPED = {
    "test_bernoulli": "draws numbers",
    "test_training_dropout": "draws numbers",
    "test_not_": "opset 1",
    "test_dynamicquantizelinear": "one quotient is halfway between integers in float32 and not in float64",
}


def cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return [case for case in found if not case.name.startswith(tuple(SKIPPED))]


def python_value(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def assert_same(actual: Any, expected: Any, tolerance: float) -> None:
    if isinstance(expected, list):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            assert_same(a, e, tolerance)
    elif expected.dtype.kind in "OUS":
        assert actual.tolist() == expected.tolist()
    else:
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        wide = complex if expected.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(actual.astype(wide), expected.astype(wide), tolerance, 1e-4)


def run(case: Any) -> None:
    source = load(case.model)
    for inputs, outputs in case.data_sets:
        feeds = {info.name: python_value(x) for info, x in zip(case.model.graph.input, inputs)}
        actual = run_model(source, feeds)
        for info, expected in zip(case.model.graph.output, outputs):
            assert_same(actual[info.name], python_value(expected), max(case.rtol, 1e-3))


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name.removeprefix("test_"))
def test_onnx_case(case):
    run(case)
