"""ONNX's own test cases, through the builders: single nodes, and the bodies of operators that are functions.

Every case of an operator with a builder runs, but for those listed here and those with elements no kernel knows.
"""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import numpy as np
import onnx
import pytest
from builders_harness import run_model
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.case.test_case import TestCase

from brickrt.graph.builder import _BUILDERS, KERNEL_TYPES
from brickrt.graph.errors import Unsupported

ON_HOST = {
    r"test_batchnorm_.*_training_mode": "training",
    r"test_training_dropout.*": "Dropout in training",
    r"test_einsum_batch_diagonal": "diagonal",
    r"test_maxpool_with_argmax.*": "Indices",
    r"test_identity_(sequence|opt)": "no arrays",
    r"test_equal_string.*": "strings",
}
WITHOUT_CASES = {"GlobalLpPool"}
TOLERANCES = {np.dtype(np.float16): (3e-3, 1e-3)}
# Values halfway between two integers in float32 are not in float64, in which definitions are evaluated.
OFF_BY_ONE = re.compile("test_dynamicquantizelinear.*")
BUILT = sorted(op for domain, op in _BUILDERS if domain == "")


@cache
def cases() -> dict[str, list[TestCase]]:
    """By operator; the bodies of functions under ''."""
    found = defaultdict(list)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in collect_testcases():
            single = len(case.model.graph.node) == 1
            found[case.model.graph.node[0].op_type if single else ""].append(case)
    return found


@pytest.mark.parametrize("op_type", BUILT)
def test_cases_of_operator(op_type: str) -> None:
    assert bool(cases()[op_type]) == (op_type not in WITHOUT_CASES)
    verify(cases()[op_type], ["indices"] if op_type == "Gather" else [])


def test_bodies_of_functions() -> None:
    bodies = [case for case in cases()[""] if {node.op_type for node in case.model.graph.node} <= {*BUILT, "Constant"}]
    assert len(bodies) > 300
    verify(bodies, [])


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
        if (a.dtype, a.shape) != (e.dtype, e.shape):
            yield f"output {k} is {a.dtype}{a.shape}, not {e.dtype}{e.shape}"
        elif OFF_BY_ONE.match(case.name) and a.dtype == np.uint8:
            if np.abs(a.astype(int) - e.astype(int)).max(initial=0) > 1:
                yield f"output {k} is off by more than one"
        else:
            rtol, atol = TOLERANCES.get(e.dtype, (case.rtol, case.atol)) if e.dtype.kind == "f" else (0, 0)
            if not np.allclose(a.astype(np.float64), e.astype(np.float64), rtol, atol, equal_nan=True):
                yield f"output {k} differs"


def array_of(value: object) -> object:
    """Arrays as they are, messages and scalars as arrays; lists and None, which are no tensors, as they are."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, (np.generic, int, float)) else value
