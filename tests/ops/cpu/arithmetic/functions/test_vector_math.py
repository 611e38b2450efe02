"""Errors of the vector functions in units in the last place, against float64, from the least subnormal to infinity.
Powers and sigmoids that are subnormal are 0."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from llvmlite import ir

from brickrt.ops.cpu.arithmetic.expressions import VECTORIZED
from brickrt.ops.cpu.compile import LoadedObjects, to_object
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.definitions.elementwise_functions import FUNCTIONS
from tests.support.cpu.harness import AVX2, HOST, skip_what_is_missing

ISAS = pytest.mark.parametrize(("isa", "lanes"), [(HOST, 16), (AVX2, 8)], ids=["avx512", "avx2"])

F32 = np.dtype(np.float32)
EXACT = {name: FUNCTIONS[name].define for name in VECTORIZED} | {"erf": np.vectorize(math.erf, otypes=[float])}
MOST_ULP = {
    "exp": 1.5,
    "log": 1.5,
    "tanh": 2.5,
    "erf": 2,
    "sigmoid": 2.5,
    "sin": 1.5,
    "cos": 1.6,
    "tan": 3.5,
    "asin": 2.5,
    "acos": 1.5,
    "atan": 1.5,
    "sinh": 2,
    "cosh": 2,
    "asinh": 2,
    "acosh": 3,
    "atanh": 2.5,
}


def run(name: str, x: np.ndarray, isa: Isa, lanes: int) -> np.ndarray:
    """A loop of the function over x, whose size is a multiple of `lanes`."""
    module = ir.Module()
    f = FunctionEmitter(module, "k", isa=isa)
    target, source = f.pointer(0), f.pointer(1)
    with f.loop(0, x.size, lanes) as i:
        f.store(VECTORIZED[name](f, f.load(source, i, F32, lanes)), target, i, F32, lanes)
    f.finish()
    skip_what_is_missing(module)
    library = LoadedObjects()
    library.add(to_object(module, isa))
    y = np.empty_like(x)
    library.function("k", ctypes.c_void_p, ctypes.c_void_p)((ctypes.c_void_p * 2)(y.ctypes.data, x.ctypes.data), None)
    return y


def ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance in units of the last place of the rounded exact value."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        unit = np.spacing(np.abs(rounded)).astype(np.float64)
        apart = np.abs(got.astype(np.float64) - exact) / unit
    return np.where(np.isfinite(rounded), apart, np.where(got == rounded, 0, np.inf))


def all_magnitudes(n: int) -> np.ndarray:
    """About 2n floats of both signs, evenly spaced in their bits."""
    positive = np.linspace(0, 0x7F800000, n).astype(np.uint32).view(np.float32)
    return np.concatenate([positive, -positive])


@ISAS
@pytest.mark.parametrize("name", VECTORIZED)
def test_error_in_ulp(name, isa, lanes):
    """Half the points cover all magnitudes, half the range where the function bends."""
    x = np.concatenate([all_magnitudes(250_000), np.linspace(-110, 110, 250_000), np.linspace(-5, 5, 250_000)])
    x = x[: x.size // 16 * 16].astype(np.float32)
    with np.errstate(all="ignore"):
        exact = EXACT[name](np.where(x > 0, x, 1.0).astype(float) if name == "log" else x.astype(float))
    if name == "log":
        exact = np.where(x > 0, exact, np.where(x == 0, -np.inf, np.nan))
    if name in ("exp", "sigmoid"):
        exact = np.where(exact < 2.0**-126, 0.0, exact)
    got = run(name, x, isa, lanes)
    worst = ulps(got, exact)
    undefined = np.isnan(exact)
    assert np.isnan(got[undefined]).all()
    at = int(np.argmax(np.where(undefined, 0, worst)))
    assert worst[at] <= MOST_ULP[name], f"{name}({x[at]!r}) = {got[at]!r}, exactly {exact[at]!r}"


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("exp", {np.inf: np.inf, -np.inf: 0, 89: np.inf, 88.5: math.exp(88.5), -87: math.exp(-87), -103: 0, 0: 1}),
        ("log", {np.inf: np.inf, 0: -np.inf, 1: 0, 1e-44: math.log(float(np.float32(1e-44)))}),
        ("tanh", {np.inf: 1, -np.inf: -1, 0: 0, 1e-40: 1e-40, 30: 1}),
        ("erf", {np.inf: 1, -np.inf: -1, 0: 0, 30: 1, -4: -1}),
        ("sin", {0: 0, 1e-40: 1e-40, 1e30: math.sin(np.float32(1e30)), -1: math.sin(-1)}),
        ("cos", {0: 1, 1e-40: 1, 1e30: math.cos(np.float32(1e30)), -1: math.cos(1)}),
        ("tan", {0: 0, 1e-40: 1e-40, 1e30: math.tan(np.float32(1e30)), -1: math.tan(-1)}),
        ("asin", {0: 0, 1e-40: 1e-40, 0.5: math.pi / 6, 1: math.pi / 2, -1: -math.pi / 2}),
        ("acos", {0: math.pi / 2, 0.5: math.pi / 3, -0.5: math.pi * 2 / 3, 1: 0, -1: math.pi}),
        ("atan", {0: 0, 1e-40: 1e-40, 1: math.pi / 4, np.inf: math.pi / 2, -np.inf: -math.pi / 2}),
        ("sinh", {0: 0, 1e-40: 1e-40, 89: math.sinh(89), 90: np.inf, np.inf: np.inf, -np.inf: -np.inf}),
        ("cosh", {0: 1, 1e-40: 1, 89: math.cosh(89), -90: np.inf, np.inf: np.inf, -np.inf: np.inf}),
        ("asinh", {0: 0, 1e-40: 1e-40, 3e38: math.asinh(3e38), np.inf: np.inf, -np.inf: -np.inf}),
        ("acosh", {1: 0, 3e38: math.acosh(3e38), np.inf: np.inf}),
        ("atanh", {0: 0, 1e-40: 1e-40, 1: np.inf, -1: -np.inf}),
        ("sigmoid", {np.inf: 1, -np.inf: 0, 0: 0.5, -87: math.exp(-87), -90: 0, 200: 1}),
    ],
)
@pytest.mark.parametrize(("isa", "lanes"), [(HOST, 16), (AVX2, 8), (HOST, 1)])
def test_special_values(name, pairs, isa, lanes):
    x = np.array([*pairs, np.nan, *[1.0] * (15 - len(pairs))], np.float32)
    want = np.array([*pairs.values(), np.nan], np.float32)
    got = run(name, x, isa, lanes)[: len(want)]
    np.testing.assert_allclose(got, want, rtol=2e-7)
    assert (np.signbit(got) == np.signbit(want))[:-1].all()


@ISAS
@pytest.mark.parametrize("name", ["tanh", "erf", "sin", "tan", "asin", "atan", "sinh", "asinh", "atanh"])
def test_odd_functions_keep_the_sign_of_zero(name, isa, lanes):
    assert np.signbit(run(name, np.full(16, -0.0, np.float32), isa, lanes)).all()


@ISAS
@pytest.mark.parametrize("name", VECTORIZED)
def test_bits_are_those_of_vectors_of_any_length(name, isa, lanes):
    """Bricks end anywhere: an element that is in a whole vector in one is in the end of a row in another."""
    x = np.concatenate([all_magnitudes(400), np.linspace(-9, 9, 160)]).astype(np.float32)
    x = x[: x.size // 96 * 96]
    whole = run(name, x, isa, lanes)
    for other in (1, 2, 3, 4, 8, 16, 32, 48):
        assert run(name, x, isa, other).tobytes() == whole.tobytes(), f"in vectors of {other}"
