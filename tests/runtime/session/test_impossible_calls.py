"""What `Runtime` says of options and inputs that make no sense, and that it stays usable."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from brickrt.graph.errors import BrickError
from brickrt.runtime.session.runtime import Runtime
from tests.runtime.session.test_runtime import check, sample, small_net


@pytest.mark.parametrize(
    ("options", "about"),
    [
        ({"device": "tpu"}, "device 'tpu'"),
        ({"strategy": "merged"}, "strategy 'merged'"),
        ({"brick": 0}, "brick 0"),
        ({"brick": 2.5}, "brick 2.5"),
        ({"max_layers": -1}, "max_layers -1"),
        ({"threads": 0}, "threads 0"),
        ({"threads": 1000}, "threads 1000"),
        ({"threads": True}, "threads True"),
        ({"threads": "two"}, "threads 'two'"),
        ({"isa": "sse"}, "'sse'"),
        ({"isa": ["avx2"]}, "isa is a list"),
        ({"exact": "no"}, "exact 'no'"),
        ({"progress": 3}, "progress is a int: give a function"),
        ({"watch": "x"}, "watch is a str: give a function, or an Observer"),
    ],
    ids=str,
)
def test_impossible_options(options, about):
    with pytest.raises(BrickError, match=about) as error:
        Runtime(small_net(1, 3, 6, 6), **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arrays", "about"),
    [
        ({}, "'x'.* is missing"),
        ({"x": np.zeros((1, 3, 6, 6))}, "float64"),
        ({"x": np.zeros((1, 3, 6, 5), np.float32)}, "dimension 3 must be 6"),
        ({"x": np.zeros((3, 6, 6), np.float32)}, "3 dimensions"),
        ({"x": np.zeros((1, 3, 6, 6), np.float32), "z": 1}, "'z'"),
        ({"x": None}, "'x'"),
        ([np.zeros((1, 3, 6, 6), np.float32)], r"list: give them by name, as \{'x': array\}"),
        (np.zeros((1, 3, 6, 6), np.float32), "ndarray: give them by name"),
    ],
)
@pytest.mark.parametrize("before", [0, 2])
def test_inputs_that_do_not_fit(arrays, about, before):
    """In the first call, and after calls that went well."""
    runtime = Runtime(small_net(1, 3, 6, 6), device="null")
    for _ in range(before):
        runtime.execute({"x": sample(1, 3, 6, 6)})
    with pytest.raises(BrickError, match=about) as error:
        runtime.execute(arrays)
    assert "\n" not in str(error.value)


def test_a_failed_call_leaves_the_runtime_usable():
    runtime = Runtime(small_net("N", 3, "H", "W"), device="cpu")
    with pytest.raises(BrickError):
        runtime.execute({"x": sample(1, 4, 6, 6)})
    check(small_net("N", 3, "H", "W"), {"x": sample(1, 3, 6, 6)}, runtime)


def test_nothing_is_known_before_the_first_call():
    runtime = Runtime(small_net(1, 3, 6, 6), device="null")
    for what in ("plan", "plans", "stats", "fallback"):
        with pytest.raises(BrickError, match="call execute or prepare"):
            getattr(runtime, what)


class Elsewhere:
    """An array on a device that DLPack does not know, as PyTorch's of shapes alone are."""

    def __dlpack_device__(self) -> tuple[int, int]:
        raise ValueError("Unknown device type meta for Dlpack")

    def __array__(self, *_: object) -> np.ndarray:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")


def test_an_array_without_elements_is_refused():
    with pytest.raises(BrickError, match=r"input 'x' is no array .*meta"):
        Runtime(small_net(1, 3, 6, 6), device="cpu").execute({"x": Elsewhere()})


@pytest.mark.parametrize("send", [pickle.dumps, copy.deepcopy])
def test_a_runtime_is_not_sent_to_other_processes(send):
    with pytest.raises(BrickError, match="send its model, and make one in each process"):
        send(Runtime(small_net(1, 3, 6, 6), device="cpu"))
