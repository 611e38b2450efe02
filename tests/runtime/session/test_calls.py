"""Calls with arrays of other libraries, into the caller's arrays, one after the other and beside an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
from onnx import TensorProto

from brickrt.graph.errors import BrickError
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.onnx_models import model, node, tensor


class OnlyDlpack:
    """An array that other libraries can only take by DLPack."""

    def __init__(self, array: np.ndarray, device: int = 1) -> None:
        self._array, self._device = array, device

    def __dlpack__(self, **how):
        return self._array.__dlpack__(**how)

    def __dlpack_device__(self):
        return self._device, 0


class OnlyArray:
    """An array that NumPy takes by its own protocol."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __array__(self, dtype=None, copy=None):
        return self._array


class Unshared:
    """An array with gradients, which its library does not share."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("it has\ngradients")


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    """x → relu → y, x → sum over columns → z"""
    nodes = [node("Relu", "x", "y"), node("ReduceSum", "x axes", "z", keepdims=0)]
    proto = model(nodes, [tensor("x", ("N", 4))], "y z", axes=np.array([1]))
    return Runtime(proto, device="cpu", threads=1)


def sample(rows: int = 3) -> np.ndarray:
    return np.arange(4 * rows, dtype=np.float32).reshape(rows, 4) - 5


def test_arrays_of_other_libraries(runtime):
    x = sample()
    for _ in range(2):  # the second takes the fast path
        for given in (x, OnlyArray(x), OnlyDlpack(x), OnlyDlpack(x.T.copy().T), x.tolist()):
            if isinstance(given, list):
                with pytest.raises(BrickError, match="input 'x' is float64"):
                    runtime.execute({"x": given})
            else:
                assert np.array_equal(runtime.execute({"x": given})["y"], np.maximum(x, 0))
    with pytest.raises(BrickError, match=r"input 'x' is no array \(it has gradients\): give one float32"):
        runtime.execute({"x": Unshared()})


def test_outputs_are_written_into_the_arrays_of_the_caller(runtime):
    x, y = sample(), np.full((3, 4), 7, np.float32)
    for _ in range(2):
        y[:] = 7
        got = runtime.execute({"x": x}, outputs={"y": y})
        assert got["y"] is y and np.array_equal(y, np.maximum(x, 0)) and np.array_equal(got["z"], x.sum(1))


def test_outputs_that_the_host_computes_are_copied():
    nodes = [node("Relu", "x", "a"), node("NonZero", "a", "y"), node("Shape", "x", "s")]
    proto = model(nodes, [tensor("x", (2, 2))], "y s")
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    y, s = np.zeros((2, 2), np.int64), np.zeros(2, np.int64)
    got = Runtime(proto, device="cpu", threads=1).execute({"x": np.eye(2, dtype="f4")}, outputs={"y": y, "s": s})
    assert got["y"] is y and y.tolist() == [[0, 1], [0, 1]] and s.tolist() == [2, 2]


def test_outputs_that_cannot_be_written_are_refused(runtime):
    x, good = sample(), np.empty((3, 4), np.float32)
    frozen = good.copy()
    frozen.flags.writeable = False
    wrong = {
        "outputs are a list: give them by name": [good],
        "output 'w' is not one of the model's: it gives 'y', 'z'": {"w": good},
        "output 'y' is a list": {"y": [1]},
        "output 'y' is float64.3,4., the model gives": {"y": good.astype("f8")},
        "output 'y' is float32.2,4., the model gives": {"y": good[:2]},
        "output 'y' is read-only": {"y": frozen},
        "output 'y' is read-only or not in row-major": {"y": np.empty((4, 3), np.float32).T},
        "output 'y' shares memory with an input": {"y": x},
        "output 'z' shares memory with an input or another": {"y": good, "z": good.reshape(-1)[:3]},
    }
    for _ in range(2):
        for message, outputs in wrong.items():
            with pytest.raises(BrickError, match=message):
                runtime.execute({"x": x}, outputs=outputs)
        runtime.execute({"x": x})


def test_many_calls_hold_two_inputs_at_a_time(runtime):
    alive = 0

    def made() -> Iterator[dict[str, np.ndarray]]:
        nonlocal alive
        for k in range(20):
            alive += 1
            yield {"x": sample() + k}

    for k, got in enumerate(runtime.execute_many(made())):
        assert np.array_equal(got["y"], np.maximum(sample() + k, 0))
        assert alive <= k + 2
    with pytest.raises(BrickError, match="give a list or a generator"):
        runtime.execute_many({"x": sample()})
    results = runtime.execute_many([{"x": sample()}, {"x": sample().astype("f8")}, {"x": sample()}])
    assert set(next(results)) == {"y", "z"}
    with pytest.raises(BrickError, match="input 'x' is float64"):
        next(results)


def test_calls_beside_an_event_loop(runtime):
    async def all_of_them() -> list[dict[str, np.ndarray]]:
        return await asyncio.gather(*(runtime.execute_async({"x": sample() + k}) for k in range(4)))

    for k, got in enumerate(asyncio.run(all_of_them())):
        assert np.array_equal(got["y"], np.maximum(sample() + k, 0))
