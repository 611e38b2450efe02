"""Padded bricks whose convolutions a library computes, a call per layer and group, in the place of cuDNN."""

from __future__ import annotations

import numpy as np
import pytest
from callback_kernels import CallbackDriver, use_callbacks
from fake_cudnn import Frontend, HostLibrary, PlanOf
from host_kernels import needs_compiler
from hypothesis import given, settings
from hypothesis import strategies as st
from piece_graphs import pieces
from plan_graphs import networks
from task_checks import lowered, with_values

from brickrt.graph.interpret import interpret
from brickrt.runtime.cuda.program import CudaOptions, CudaProgram

pytestmark = needs_compiler


@pytest.fixture(autouse=True)
def _callbacks(monkeypatch, tmp_path):
    use_callbacks(monkeypatch)
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))


def check(graph, inputs, launch="graph", group=None, brick=None, band=None, seed=0, plans=None):
    """Runs a graph in padded bricks twice and compares; the program, and what its library ran."""
    library = HostLibrary(Frontend(plans or [PlanOf()]))
    driver = CallbackDriver(seed=seed, given_library=library)
    tasks = lowered(graph, "padded", driver.spec, band, brick=brick)
    want = interpret(graph, inputs)
    program = CudaProgram(tasks, driver, CudaOptions(launch, group))
    for _ in range(2):
        outputs = [np.full(graph.types[name].shape, np.nan, np.float32) for name in graph.outputs]
        program.run([inputs[name] for name in graph.inputs], outputs)
        for name, array in zip(graph.outputs, outputs, strict=True):
            np.testing.assert_allclose(array, want[name], rtol=0, atol=1e-4 * max(1, np.abs(want[name]).max()))
    driver.check()
    return program, library


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(networks(), pieces()),
    st.sampled_from(["streams", "graph"]),
    st.sampled_from([1, 2, 3, 8]),
    st.sampled_from([None, 1, 3]),
    st.sampled_from([None, 1, 2]),
    st.integers(0, 99),
)
def test_random_graphs(graph, launch, brick, band, group, seed):
    graph, inputs = with_values(graph)
    check(graph, inputs, launch, group, brick, band, seed)
