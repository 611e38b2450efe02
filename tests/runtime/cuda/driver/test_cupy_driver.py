"""The real driver on a CuPy of the host's: programs through it, and every call as the real functions want it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from brickrt.graph.errors import BrickError
from brickrt.runtime.cuda.driver.device_errors import DeviceError
from brickrt.runtime.cuda.driver.protocol import CaptureRefused
from tests.runtime.cuda.test_runs import X, chain, on_cpu
from tests.support.cuda.engines import runtime_on
from tests.support.cuda.host_kernels import needs_compiler

pytest.importorskip("cupy", reason="the driver is CuPy's")
from brickrt.runtime.cuda.driver import cupy_driver, cupy_errors, cupy_objects
from tests.support.cuda.fake_cupy import Array, FakeCupy, FakeStream, Refused

pytestmark = needs_compiler


@pytest.fixture
def fake(monkeypatch):
    made = FakeCupy()
    for module in (cupy_driver, cupy_objects, cupy_errors):
        for name in {"cupy", "cudart", "cu"} & vars(module).keys():
            monkeypatch.setattr(module, name, getattr(made, name))
    monkeypatch.setattr(cupy_driver, "STREAMS", (FakeStream,))
    monkeypatch.setattr(cupy_driver, "compile_modules", made.compile_modules)
    return made


@pytest.fixture
def driver(fake):
    made = cupy_driver.CupyDriver()
    made.no_library = "not here"
    return made


def runtime_of(monkeypatch, driver, launch="persistent", strategy="memoized"):
    return runtime_on(monkeypatch, driver, chain(), launch, strategy=strategy, brick=4)


@pytest.mark.parametrize("strategy", ["layerwise", "padded", "memoized"])
@pytest.mark.parametrize("launch", ["streams", "dynamic", "persistent"])
def test_arrays_of_the_host(monkeypatch, fake, driver, launch, strategy):
    made = runtime_of(monkeypatch, driver, launch, strategy)
    for _ in range(2):
        fake.calls.clear()
        np.testing.assert_allclose(made.execute({"x": X})["y"], on_cpu(chain()), rtol=1e-5, atol=1e-5)
    if launch == "persistent":
        steady = ["getDevice", "setDevice", "memcpyAsync", "graph", "memcpyAsync", "streamSynchronize"]
        assert fake.calls == steady
    for memory in fake.memory:
        memory.check()


def test_events_tell_whether_they_are_done(fake, driver):
    """What CUDA says of one that is not is taken back, or others would see it as an error; true errors are raised."""
    event = driver.event()
    for status, done in ((0, True), (600, False)):
        fake.statuses[0] = status
        fake.calls.clear()
        assert event.query() == done
        assert fake.calls == ["eventQuery", "check_status"]
    fake.statuses[0] = 700
    with pytest.raises(DeviceError, match="cudaErrorIllegalAddress") as told:
        event.query()
    assert told.value.fatal


@pytest.mark.parametrize("stream", [None, 5, "cupy", "protocol", "torch"])
def test_arrays_of_the_device_on_any_stream(monkeypatch, fake, driver, stream):
    address = 5
    streams = {
        "cupy": FakeStream(fake, address),
        "protocol": SimpleNamespace(__cuda_stream__=lambda: (0, address)),
        "torch": SimpleNamespace(cuda_stream=address),
    }
    given = streams.get(stream, stream)
    assert driver.stream_of(given).address == (0 if stream is None else address)
    made = runtime_of(monkeypatch, driver)
    y = made.execute({"x": Array(fake, X)}, stream=given)["y"]
    assert isinstance(y, Array)
    np.testing.assert_allclose(driver.host(y, given), on_cpu(chain()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("able", [0, 1])
def test_blocks_start_together_where_the_device_can(monkeypatch, fake, able):
    """Where it cannot the tickets alone exclude that blocks wait for ever."""
    monkeypatch.setattr(fake.cudart, "deviceGetAttribute", lambda which, device: able if which == 95 else 1_000_000)
    driver = cupy_driver.CupyDriver()
    driver.no_library = "not here"
    made = runtime_of(monkeypatch, driver)
    np.testing.assert_allclose(made.execute({"x": X})["y"], on_cpu(chain()), rtol=1e-5, atol=1e-5)
    assert ("launchCooperativeKernel" in fake.calls) == bool(able)


def test_no_stream(driver):
    with pytest.raises(BrickError, match="a str is no CUDA stream"):
        driver.stream_of("five")


def test_other_devices(fake, driver):
    """The calling thread's device is what it was; arrays of others are refused."""
    fake.device = 1
    with driver.current:
        assert fake.device == 0
    assert fake.device == 1
    x = Array(fake, X)
    fake.places[x.data.ptr] = x.data.device_id = x.device.id = 1
    others = SimpleNamespace(__cuda_array_interface__=x.__cuda_array_interface__, shape=x.shape, dtype=x.dtype)
    exported = SimpleNamespace(__dlpack_device__=lambda: (2, 1))
    for there in (x, others, exported):
        with pytest.raises(BrickError, match="an input lies on GPU 1, the model runs on GPU 0: copy it there"):
            driver.view(there, None)
    fake.places.clear()
    np.testing.assert_array_equal(driver.view(others, None).get(), X)


@pytest.mark.parametrize("stream", [None, 5])
def test_other_libraries_are_told_which_stream_waits(fake, driver, stream):
    """An array that has both protocols, as PyTorch's have: by one of them its library orders its own streams."""
    x, told = Array(fake, X), []

    def dlpack(stream):
        told.append(stream)
        return x

    tensor = SimpleNamespace(
        __cuda_array_interface__=x.__cuda_array_interface__, __dlpack__=dlpack, __dlpack_device__=lambda: (2, 0)
    )
    assert driver.view(tensor, stream) is x and told == [stream or 0]


def test_the_reason_of_a_refused_capture_is_the_first(fake, driver):
    stream = driver.stream()
    with pytest.raises(CaptureRefused, match="CaptureUnsupported: operation not permitted"), driver.capture(stream):
        stream.synchronize()
    assert fake.capturing is None

    def broken():
        raise Refused("nothing was captured")

    with pytest.raises(CaptureRefused, match="a library does not like it"), driver.capture(stream):
        stream.cupy.end_capture = broken
        raise RuntimeError("a library does not like it")


def test_calls_that_do_not_fit_are_noticed(fake):
    with pytest.raises(AssertionError, match="2 arguments"):
        fake.cudart.memcpyAsync(1, 2)
    with pytest.raises(AssertionError, match="int kind is"):
        fake.cudart.memcpyAsync(1, 2, 3, 1 << 40, 5)
