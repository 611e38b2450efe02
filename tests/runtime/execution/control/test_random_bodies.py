"""Loops, scans and branches nobody wrote give what the host gives, which evaluates them node by node."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import brickrt
from tests.runtime.execution.control.random_bodies import COLUMNS, ROWS, random_control
from tests.support.graphs.by_definition import run_model
from tests.support.graphs.onnx_models import by_onnxruntime


def inputs_for(seed: int, rounds: int, rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((ROWS, COLUMNS)).astype(np.float32),
        "t": rng.standard_normal((rows, COLUMNS)).astype(np.float32),
        "n": np.array(rounds),
        "yes": np.array(bool(seed % 2)),
    }


def check(results: dict, wanted: dict) -> None:
    for name, value in wanted.items():
        assert (results[name].dtype, results[name].shape) == (value.dtype, value.shape), name
        np.testing.assert_allclose(results[name], value, rtol=0, atol=2e-5, err_msg=name)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**20), rounds=st.integers(0, 7), rows=st.integers(1, 3))
def test_random_bodies(seed: int, rounds: int, rows: int) -> None:
    model = random_control(random.Random(seed))
    runtime = brickrt.Runtime(model, device="cpu", threads=1)
    source = brickrt.load(model)
    for turn in range(2):
        arrays = inputs_for(seed + turn, rounds + turn, rows)
        results = runtime.execute(arrays)
        check(results, run_model(source, arrays))
        if rounds:  # else ONNX Runtime stacks nothing as the body declares it
            check(results, by_onnxruntime(model, arrays))
