"""CUDA's errors through the real driver, on a CuPy of the host's: which call it was, and what memory was for."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.errors import BrickError
from brickrt.runtime.cuda.driver.protocol import CaptureRefused
from tests.runtime.cuda.test_runs import X, chain, on_cpu
from tests.support.cuda.host_kernels import needs_compiler

pytest.importorskip("cupy", reason="the driver is CuPy's")
import cupy

from brickrt.runtime.cuda.driver import cupy_driver, cupy_errors
from tests.runtime.cuda.driver.test_cupy_driver import driver, fake, runtime_of  # noqa: F401  (fixtures)
from tests.support.cuda.fake_cupy import Array, Refused

pytestmark = needs_compiler

ILLEGAL = Refused("cudaErrorIllegalAddress: an illegal memory access was encountered", 700)
SPENT = Refused("cudaErrorMemoryAllocation: out of memory", 2)
INVALID = Refused("cudaErrorInvalidValue: invalid argument", 1)
POOL = cupy.cuda.memory.OutOfMemoryError(1 << 30, 1 << 20)
FREE = "100.0 MiB of 81920.0 MiB are free"
CALLS = {"memcpyAsync": "copying memory", "launch": "launching the CUDA graph", "streamSynchronize": "waiting for work"}


def error_of(runtime, given=X) -> str:
    with pytest.raises(BrickError) as told:
        runtime.execute({"x": given})
    assert "\n" not in str(told.value)
    return str(told.value)


@pytest.mark.parametrize("call", CALLS)
def test_calls_that_are_refused(monkeypatch, fake, driver, call):  # noqa: F811
    made = runtime_of(monkeypatch, driver)
    made.execute({"x": X})
    fake.fails = {call: INVALID}
    assert error_of(made) == f"{CALLS[call]} failed on the GPU: {INVALID}"
    fake.fails = {}
    np.testing.assert_allclose(made.execute({"x": X})["y"], on_cpu(chain()), rtol=1e-5, atol=1e-5)


def test_a_launch_that_is_refused(monkeypatch, fake, driver):  # noqa: F811
    made = runtime_of(monkeypatch, driver, "streams", "layerwise")
    made.execute({"x": X})
    fake.fails = {"launchKernel": INVALID}
    told = error_of(made)
    assert told.startswith("node '") and ": launching kernel turns_" in told and told.endswith(str(INVALID))


@pytest.mark.parametrize("call", [*CALLS, "setDevice"])
def test_a_fault_is_the_end(monkeypatch, fake, driver, call):  # noqa: F811
    monkeypatch.setattr(cupy_driver, "_DRIVERS", {0: driver})
    made = runtime_of(monkeypatch, driver)
    made.execute({"x": X})
    fake.fails = {call: ILLEGAL}
    told = error_of(made)
    wheres = {"streamSynchronize": "in nodes ", "launch": "when launching the CUDA graph, before a kernel began: "}
    wheres |= {"memcpyAsync": "when copying memory: ", "setDevice": "when choosing the device: "}
    assert told.startswith(f"the GPU took a fault {wheres[call]}") and str(ILLEGAL) in told
    fake.fails = {}
    again = f"the GPU took a fault and cannot be used any more in this process: start a new one. {told}"
    assert error_of(made) == again
    with pytest.raises(BrickError) as later:
        cupy_driver.current_driver()
    assert str(later.value) == again


@pytest.mark.parametrize("error", [POOL, SPENT])
def test_memory_that_runs_out_names_its_purpose(monkeypatch, fake, driver, error):  # noqa: F811
    made = runtime_of(monkeypatch, driver)
    fake.fails = {"alloc": error}
    told = error_of(made)
    assert told.startswith("the GPU has not enough memory left for the 0.0 MiB of a program (") and told.endswith(FREE)
    for name, purpose in (("alloc_pinned", "0.0 MiB of counts of launches"), ("load", "loading kernel tickets_")):
        fake.fails = {name: SPENT}
        told = error_of(made)
        assert purpose in told and told.startswith(
            f"the {'host (pinned)' if name == 'alloc_pinned' else 'GPU'} has not"
        )
    fake.fails = {}
    made.prepare({"x": X})
    x = Array(fake, X)
    fake.fails = {"alloc": error}
    assert error_of(made) == f"the GPU has not enough memory left for the 0.0 MiB of input 'x': {FREE}"
    assert f"the 0.0 MiB of an output, float32[1,3,16,16]: {FREE}" in error_of(made, x)
    fake.fails = {}
    np.testing.assert_allclose(made.execute({"x": X})["y"], on_cpu(chain()), rtol=1e-5, atol=1e-5)


def test_a_graph_without_memory_is_launched_from_streams(monkeypatch, fake, driver, capsys):  # noqa: F811
    made = runtime_of(monkeypatch, driver)
    fake.fails = {"upload": SPENT}
    made.execute({"x": X})
    assert f"the GPU has not enough memory left for making the CUDA graph: {FREE}" in capsys.readouterr().err
    fake.fails = {"upload": ILLEGAL}
    stream = driver.stream()
    with pytest.raises(BrickError, match="making the CUDA graph failed"), driver.capture(stream):
        pass
    fake.fails = {"upload": INVALID}
    with pytest.raises(CaptureRefused, match="InvalidValue"), driver.capture(stream):
        pass


def test_memory_for_measuring_plans(fake, driver):  # noqa: F811
    fake.fails = {"alloc": POOL}
    with pytest.raises(
        BrickError, match=r"for the 3\.0 MiB of measuring a plan of cuDNN's, with a workspace of 1\.0 MiB"
    ):
        cupy_driver._measured(None, None, lambda *_: None, [1 << 20, 1 << 20], 1 << 20)


def test_errors_without_a_driver(fake, monkeypatch):  # noqa: F811
    """How much is free is not known where CUDA does not tell."""
    fake.fails = {"memGetInfo": ILLEGAL}
    assert (
        str(cupy_errors.device_error(SPENT, "copying")) == f"the GPU has not enough memory left for copying: {ILLEGAL}"
    )
