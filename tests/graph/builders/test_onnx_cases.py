"""ONNX's own test cases of operators, through the builders alone and through the whole of specialization.

Through the builders go single nodes and the bodies of operators that are functions: every case of an operator with a
builder, but for those listed here and those with elements no kernel knows. Specialization takes every case there is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import chain

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase

from brickrt.graph.builder import _BUILDERS, KERNEL_TYPES
from brickrt.graph.builders import common
from brickrt.graph.errors import Unsupported
from brickrt.graph.onnx_import import source
from tests.support.graphs import by_definition
from tests.support.graphs.builders_harness import run_model
from tests.support.graphs.onnx_cases import PARTS, cases_of

ON_HOST = {
    r"test_batchnorm_.*_training_mode": "training",
    r"test_training_dropout.*": "Dropout in training",
    r"test_einsum_batch_diagonal": "diagonal",
    r"test_maxpool_with_argmax.*": "Indices",
    r"test_scatter.*_(add|multiply|max|min|duplicate_indices|reduction_\w+|element_indices)": "combined updates",
    r"test_identity_(sequence|opt)": "no arrays",
    r"test_equal_string.*": "strings",
    r"test_lstm_with_peepholes": "peepholes",
}
WITHOUT_CASES = {"GlobalLpPool"}
AT_CONSTANT_POSITIONS = {"Gather", "GatherND", "GatherElements", "Scatter", "ScatterElements", "ScatterND"}
TOLERANCES = {np.dtype(np.float16): (1e-3, 1e-4)}
# Values halfway between two integers in float32 are not in float64, in which definitions are evaluated.
OFF_BY_ONE = re.compile("test_dynamicquantizelinear.*")
# Expects the rounding error of a float32 transform, 1.9e-7, where the exact result is 0.
NEXT_TO_ZERO = re.compile("test_dft_inverse.*")
RANDOM = re.compile("test_bernoulli.*")
TOO_OLD = re.compile("test_not_[234]d")
EXPANDED = re.compile(r"_expanded(_ver\d+)?$")
BUILT = sorted(op for domain, op in _BUILDERS if domain == "")


@cache
def cases() -> dict[str, list[TestCase]]:
    """By operator; the bodies of functions under ''."""
    found = defaultdict(list)
    for case in chain.from_iterable(map(cases_of, PARTS)):
        single = len(case.model.graph.node) == 1
        found[case.model.graph.node[0].op_type if single else ""].append(case)
    return found


@pytest.mark.parametrize("op_type", BUILT)
def test_cases_of_operator(op_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is built for images only is built for the small tensors of cases.
    monkeypatch.setattr(common, "IMAGE_ELEMENTS", 0)
    assert bool(cases()[op_type]) == (op_type not in WITHOUT_CASES)
    verify(cases()[op_type], ["indices"] if op_type in AT_CONSTANT_POSITIONS else [])


def test_bodies_of_functions() -> None:
    bodies = [case for case in cases()[""] if {node.op_type for node in case.model.graph.node} <= {*BUILT, "Constant"}]
    assert len(bodies) > 300
    verify(bodies, [])


def test_all_cases_through_specialization() -> None:
    """What has no brick operators runs on the host. Models of opset 1 are refused; nobody can say what chance gives.
    Functions that are written out are left to `test_bodies_of_functions`, and to tests/backend, which specializes them
    as well."""
    everything = [case for group in cases().values() for case in group if not EXPANDED.search(case.name)]
    selected = [case for case in everything if not RANDOM.match(case.name) and not TOO_OLD.match(case.name)]
    assert len(selected) > 1300
    failures = [f"{case.name}: {problem}" for case in selected for problem in problems_of_model(case)]
    assert not failures, "\n".join(failures)


def problems_of_model(case: TestCase) -> Iterator[str]:
    model = source.load(case.model)
    for inputs, outputs in case.data_sets:
        feeds = dict(zip((v.name for v in case.model.graph.input), map(array_of, inputs), strict=True))
        results = list(by_definition.run_model(model, feeds).values())
        yield from differences(case, flat(results), flat([array_of(value) for value in outputs]))


def flat(values: list) -> list[np.ndarray]:
    """The tensors of sequences one after the other, and no absent optionals."""
    parts = [flat(value) if isinstance(value, list) else [np.asarray(value)] for value in values if value is not None]
    return [array for part in parts for array in part]


def verify(selected: list[TestCase], constants: list[str]) -> None:
    failures = [f"{case.name}: {problem}" for case in selected for problem in problems(case, constants)]
    assert not failures, "\n".join(failures)


def problems(case: TestCase, constants: list[str]) -> Iterator[str]:
    """What is wrong with the results of a case; nothing where it runs on the host and should."""
    expected_on_host = any(re.fullmatch(pattern, case.name) for pattern in ON_HOST)
    for inputs, outputs in case.data_sets:
        wanted = [array_of(value) for value in outputs]
        feeds = dict(zip((v.name for v in case.model.graph.input), map(array_of, inputs), strict=True))
        exotic = any(getattr(a, "dtype", None) not in KERNEL_TYPES for a in (*feeds.values(), *wanted))
        if exotic and any(not isinstance(a, np.ndarray) for a in (*feeds.values(), *wanted)):
            continue
        try:
            results = run_model(case.model, feeds, known_names(case.model, feeds, constants))
        except Unsupported as reason:
            if not expected_on_host and not exotic:
                yield f"runs on the host: {reason}"
            continue
        if expected_on_host:
            yield "does not run on the host"
        yield from differences(case, results, wanted)


def known_names(model: onnx.ModelProto, feeds: dict[str, np.ndarray], constants: list[str]) -> list[str]:
    """Integer inputs of functions are positions, which tables need."""
    positions = [name for name, a in feeds.items() if a.dtype == np.int64] if len(model.graph.node) > 1 else []
    return [name for name in feeds if name in (*constants, *positions)]


def differences(case: TestCase, results: list[np.ndarray], wanted: list[np.ndarray]) -> Iterator[str]:
    for k, (a, e) in enumerate(zip(results, wanted, strict=True)):
        text = e.dtype.kind in "OU"
        if a.shape != e.shape or (a.dtype != e.dtype and not text):
            yield f"output {k} is {a.dtype}{a.shape}, not {e.dtype}{e.shape}"
        elif not (np.array_equal(a, e) if text else near(case, a, e)):
            yield f"output {k} differs"


def near(case: TestCase, actual: np.ndarray, expected: np.ndarray) -> bool:
    """Equal, but for rounding."""
    if expected.dtype.kind == "c":
        return np.allclose(actual, expected, case.rtol, case.atol)
    rounded = expected.dtype.kind in "fV"
    rtol, atol = TOLERANCES.get(expected.dtype, (case.rtol, case.atol)) if rounded else (0, 0)
    atol = 1 if OFF_BY_ONE.match(case.name) and expected.dtype == np.uint8 else atol
    atol = 1e-6 if NEXT_TO_ZERO.match(case.name) else atol
    return np.allclose(actual.astype(np.float64), expected.astype(np.float64), rtol, atol, equal_nan=True)


def array_of(value: object) -> object:
    """Arrays as they are, messages and scalars as arrays; lists and None, which are no tensors, as they are."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, (np.generic, int, float)) else value
