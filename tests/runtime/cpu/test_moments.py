"""Norms by partial moments are as near to their definition as those that go over a tensor again for the variance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.graph.ir import Graph
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.partial_moments import PartialMoments
from brickrt.ops.operators.reduce import Reduce
from brickrt.plan.device.device_spec import DeviceSpec, host_device
from brickrt.plan.merging import split_moments
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.cpu.program import CpuProgram
from tests.support.graphs.plan_graphs import Sketch
from tests.support.task_checks import lowered

F32 = np.dtype(np.float32)
EPSILON = 1e-5
UNIT = 2.0**-24  # of float32
HOST = host_device()
ALWAYS, NEVER = replace(HOST, l2=1, min_task_us=1e-3), replace(HOST, l2=2**40)


SHAPES = st.tuples(st.integers(1, 2), st.integers(1, 20), st.integers(1, 40), st.integers(1, 300))
SIGNALS = st.tuples(st.integers(1, 2), st.integers(1, 20), st.integers(1, 3000))


@pytest.fixture(autouse=True, scope="module")
def rows_of_any_length() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split_moments, "SHORTEST_ROW", 1)
        yield


def identity(shape: tuple[int, ...]) -> Conv:
    """A convolution of each channel with a weight, so that images lie in blocks of channels."""
    n = len(shape) - 2
    return Conv((1,) * n, (1,) * n, (1,) * n, (0,) * n, (0,) * n, groups=shape[1])


def norm(shape: tuple[int, ...], blocked: bool) -> Graph:
    """
    x ─ (convolution) ─┬─ mean ─┬─────────┐
                       ├────────┴ spread ─┤
                       └──────────────────┴─ y, mean
    """
    s = Sketch()
    x, y, axes = s.input(*shape), arg(1, F32), tuple(range(2, len(shape)))
    count = const(np.prod(shape[2:]), F32)
    if blocked:
        x = s.add(identity(shape), x, s.constant(values=np.ones((shape[1], *(1,) * (len(axes) + 1)), np.float32)))
    difference = apply("sub", arg(0, F32), y)
    finish = apply("sqrt", apply("add", apply("div", arg(0, F32), count), const(EPSILON, F32)))
    mean = s.add(Reduce("sum", axes, True, None, apply("div", arg(0, F32), count)), x)
    spread = s.add(Reduce("sum", axes, True, apply("mul", difference, difference), finish), x, mean)
    y = s.add(Map(apply("div", difference, arg(2, F32))), x, mean, spread)
    return s.graph(y, mean)


def run(graph: Graph, spec: DeviceSpec, x: np.ndarray, threads: int = 2) -> list[np.ndarray]:
    """y and the mean."""
    tasks = lowered(replace(graph, constants=dict(graph.constants)), "auto", spec, exact=True)
    taken = any(isinstance(node.op, PartialMoments) for node in tasks.plan.graph.nodes)
    assert taken == (spec is ALWAYS)
    outputs = [np.full(graph.types[name].shape, np.nan, np.float32) for name in graph.outputs]
    CpuProgram.build(tasks, host_isa(spec), threads).run([x], outputs)
    return outputs


def defined(x: np.ndarray) -> list[np.ndarray]:
    """The same in float64."""
    axes = tuple(range(2, x.ndim))
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        mean = wide.mean(axes, keepdims=True)
        return [(wide - mean) / np.sqrt(wide.var(axes, keepdims=True) + EPSILON), mean]


def worst(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.abs(got - want).max(initial=0))


@settings(max_examples=8, deadline=None, derandomize=True)
@given(SHAPES | SIGNALS, st.booleans(), st.sampled_from([(0, 1), (1e4, 1), (-3e5, 1), (1e4, 0.01), (1e-3, 1e-4)]))
def test_no_farther_from_the_definition(shape: tuple[int, ...], blocked: bool, kind: tuple[float, float]) -> None:
    """Than two reductions are, but for a last bit of the mean. With one thread there are the same bits as with two."""
    mean, deviation = kind
    x = (mean + deviation * np.random.default_rng(0).standard_normal(shape)).astype(np.float32)
    graph, wanted = norm(shape, blocked), defined(x)
    got, again, other = run(graph, ALWAYS, x), run(graph, ALWAYS, x, threads=1), run(graph, NEVER, x)
    spread = np.sqrt(x.astype(np.float64).var(axis=tuple(range(2, x.ndim))).min() + EPSILON)
    last_bit = 2 * UNIT * np.abs(x).max()
    assert worst(got[1], wanted[1]) <= worst(other[1], wanted[1]) + last_bit
    assert (
        worst(got[0], wanted[0]) <= worst(other[0], wanted[0]) + last_bit / spread + 4 * UNIT * np.abs(wanted[0]).max()
    )
    for one, two in zip(got, again, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("value", [0, 1e4 + 1 / 3, -7.7e-20, 3e30])
@pytest.mark.parametrize("blocked", [False, True])
def test_constant_rows(blocked: bool, value: float) -> None:
    """The mean is the value to the last bit, and what is left is nothing."""
    x = np.full((1, 5, 37, 131), value, np.float32)
    y, mean = run(norm(x.shape, blocked), ALWAYS, x)
    np.testing.assert_array_max_ulp(mean, x[:, :, :1, :1])
    assert np.abs(y).max() * np.sqrt(EPSILON) <= 2 * UNIT * abs(value)


@pytest.mark.parametrize("special", [(np.inf,), (-np.inf,), (np.inf, -np.inf), (np.nan,), (np.nan, np.inf)])
@pytest.mark.parametrize("blocked", [False, True])
def test_infinity_and_nan(blocked: bool, special: tuple[float, ...]) -> None:
    """In one channel, whose mean and pixels are what the definition says; others do not know of it."""
    x = np.random.default_rng(0).standard_normal((2, 5, 37, 131)).astype(np.float32)
    x[1, 3, 20, 70 : 70 + len(special)] = special
    wanted = defined(x)
    for got, want in zip(run(norm(x.shape, blocked), ALWAYS, x), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert np.isnan(wanted[0]).sum() == 37 * 131


@pytest.mark.parametrize("blocked", [False, True])
def test_squares_beyond_the_range(blocked: bool) -> None:
    """Their sum is infinite, as it is where the mean is known before: pixels are 0."""
    x = (1e25 * np.random.default_rng(0).standard_normal((1, 5, 37, 131))).astype(np.float32)
    graph = norm(x.shape, blocked)
    (y, mean), (other, _) = run(graph, ALWAYS, x), run(graph, NEVER, x)
    np.testing.assert_array_equal(y, other)
    np.testing.assert_allclose(mean, defined(x)[1], rtol=1e-3)
    assert not y.any()
