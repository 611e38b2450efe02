"""Recurrent layers: kernels against the definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.ops.base import evaluate_whole
from brickrt.ops.expr import Expr, apply, arg, const
from brickrt.ops.operators.recurrence import Recurrence
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.harness import AVX2, HOST, run_kernel

F32 = np.dtype(np.float32)


def value(k: int) -> Expr:
    return arg(k, F32)


def lstm_steps() -> tuple[Expr, ...]:
    i, o, f, g = (apply("add", value(k), value(4 + k)) for k in range(4))
    kept, new = apply("mul", apply("sigmoid", f), value(8)), apply("mul", apply("sigmoid", i), apply("tanh", g))
    return apply("add", kept, new), apply("mul", apply("sigmoid", o), apply("tanh", value(10)))


def one_gate() -> tuple[Expr, ...]:
    return (apply("tanh", apply("add", apply("add", value(0), value(1)), value(2))),)


def gru_steps() -> tuple[Expr, ...]:
    z, new = apply("sigmoid", apply("add", value(0), value(3))), apply("tanh", apply("add", value(2), value(5)))
    return (apply("add", apply("mul", apply("sub", const(1, F32), z), new), apply("mul", z, value(6))),)


RESET = apply("mul", apply("sigmoid", apply("add", value(1), value(4))), value(6))


def operands(op: Recurrence, time: int, batch: int, hidden: int) -> list[np.ndarray]:
    rng, d, wide = np.random.default_rng(time * batch * hidden), len(op.backward), op.gates * hidden
    shapes = [(time, batch, d * wide), (d, hidden, wide), *[(d, wide)] * op.bias, *[(d, batch, hidden)] * op.states]
    arrays = [(rng.standard_normal(s) / (hidden**0.5 if k == 1 else 1)).astype(F32) for k, s in enumerate(shapes)]
    if op.scaled:
        arrays[1] = rng.integers(-128, 128, shapes[1]).astype(np.int8)
        arrays.insert(2 + op.bias, rng.uniform(0.001, 0.02, (d, wide)).astype(F32) / hidden**0.5)
    return arrays


CASES = {  # time, sequences, elements
    "one sequence": (7, 1, 32),
    "part of a vector": (3, 2, 5),
    "tiles of sequences": (4, 8, 48),
    "a ragged state": (5, 7, 33),
    "one step": (1, 3, 16),
    "one element": (4, 1, 1),
}
LAYERS = {
    "lstm": Recurrence(4, (False,), lstm_steps()),
    "lstm both ways": Recurrence(4, (False, True), lstm_steps(), bias=True),
    "backward": Recurrence(1, (True,), one_gate(), bias=True),
    "lstm of bytes": Recurrence(4, (False, True), lstm_steps(), bias=True, scaled=True),
    "lstm of bytes, states of two": Recurrence(4, (False, True), lstm_steps(), bias=True, scaled=True, state_bytes=2),
    "gru": Recurrence(3, (True,), gru_steps(), reset=RESET),
    "gru both ways": Recurrence(3, (False, True), gru_steps(), bias=True, reset=RESET),
    "gru of bytes": Recurrence(3, (False, True), gru_steps(), bias=True, scaled=True, reset=RESET),
    "bytes without a bias": Recurrence(1, (True,), one_gate(), scaled=True),
}


def check(op: Recurrence, arrays: list[np.ndarray], isa, box: Boxes | None = None, **how) -> None:
    want = evaluate_whole(op, arrays)
    box = Boxes.whole(want.shape) if box is None else box
    got = run_kernel(op, arrays, box, isa, **how)
    np.testing.assert_allclose(got, want[box.slices(0, (0,) * 5)], rtol=2e-5, atol=2e-6 + rounding(op, arrays))


def rounding(op: Recurrence, arrays: list[np.ndarray]) -> float:
    """How far states of two bytes, up to 1 or what they begin with, may make sums of a step: 4 deviations of as many
    roundings as states have elements, each evenly spread over a unit."""
    if op.state_bytes == 3:
        return 0.0
    unit = max(1.0, float(np.abs(arrays[-1]).max())) / (2**15 - 1)
    weights = arrays[1].astype(np.float64) * arrays[2 + op.bias][:, None]
    return 4 * unit / 12**0.5 * float(np.sqrt((weights**2).sum(1)).max())


@pytest.mark.parametrize(
    ("case", "layer", "isa"),
    [
        pytest.param(case, layer, (HOST, AVX2)[(i + k) % 2], id=f"{case}-{layer}-{('avx512', 'avx2')[(i + k) % 2]}")
        for i, case in enumerate(CASES)
        for k, layer in enumerate(LAYERS)
    ],
)
def test_layers(case, layer, isa):
    """Any two of the three parameters meet in all combinations."""
    op = LAYERS[layer]
    packed = [False, True, *[True] * (op.bias + op.scaled), *[False] * op.states]
    check(op, operands(op, *CASES[case]), isa, packed=packed)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("layer", ["lstm both ways", "gru both ways"])
def test_weights_that_are_no_constants(layer, dtype):
    op = LAYERS[layer]
    arrays = operands(op, 3, 4, 21)
    arrays[1] = arrays[1].astype(dtype)
    check(op, arrays, HOST)


@pytest.mark.parametrize("isa", [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")])
@pytest.mark.parametrize("case", ["one sequence", "a ragged state"])
def test_weights_of_float16(case, isa):
    op = LAYERS["lstm both ways"]
    arrays = operands(op, *CASES[case])
    arrays[1] = arrays[1].astype(np.float16)
    check(op, arrays, isa, packed=[False, True, True, False, False])


def test_weights_of_bytes_must_be_constants():
    op = LAYERS["lstm of bytes"]
    with pytest.raises(ValueError, match="must be constants"):
        run_kernel(op, operands(op, 3, 4, 21), Boxes.whole((2, 3, 2, 4, 21)))


@pytest.mark.parametrize("isa", [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")])
@pytest.mark.parametrize("largest", [0.0, 1e-35, 3e-3, 40.0, 1e30])
@pytest.mark.parametrize("count", [2, 3])
def test_states_of_any_size_times_bytes(count, largest, isa):
    """The unit of a state's bytes is its own; others of the same step do not change it."""
    op = Recurrence(1, (False,), (apply("add", value(1), value(2)),), scaled=True, state_bytes=count)
    arrays = operands(op, 1, 5, 70)
    arrays[-1][:, 2:4] *= np.float32(largest)
    with np.errstate(over="ignore"):
        check(op, arrays, isa, packed=[False, True, True, False])


def test_a_state_without_a_number_stays_in_its_sequence():
    op, packed = LAYERS["bytes without a bias"], [False, True, True, False]
    arrays = operands(op, 2, 3, 24)
    arrays[-1][0, 1, 5] = np.nan
    got = run_kernel(op, arrays, Boxes.whole((1, 2, 1, 3, 24)), packed=packed)
    assert np.isnan(got[:, :, :, 1]).all()
    assert np.isfinite(got[:, :, :, [0, 2]]).all()


@settings(max_examples=8, deadline=None)
@given(
    hidden=st.integers(1, 150), batch=st.integers(1, 5), gates=st.sampled_from([1, 4]), most=st.sampled_from([1, 127])
)
def test_products_of_bytes_and_states(hidden, batch, gates, most):
    """Sums of every width, of weights that are all the largest too."""
    op = Recurrence(4, (True,), lstm_steps(), scaled=True) if gates == 4 else LAYERS["bytes without a bias"]
    arrays = operands(op, 2, batch, hidden)
    arrays[1] = np.where(np.random.default_rng(hidden).random(arrays[1].shape) < 0.9, most, -128).astype(np.int8)
    arrays[2] /= 128.0
    check(op, arrays, HOST, packed=[False, True, True, *[False] * op.states])


@pytest.mark.parametrize(
    "layer", ["lstm both ways", "lstm of bytes", "lstm of bytes, states of two", "gru both ways", "gru of bytes"]
)
def test_parts_are_bits_of_the_whole(layer):
    """A direction, or some sequences, as a task has them: whatever register tiles they are in."""
    op = LAYERS[layer]
    packed = [False, True, *[True] * (op.bias + op.scaled), *[False] * op.states]
    arrays = operands(op, 6, 7, 19)
    whole = run_kernel(op, arrays, Boxes.whole((op.states, 6, 2, 7, 19)), packed=packed)
    for d, lo, hi in ((0, 0, 7), (1, 2, 4), (1, 6, 7)):
        box = Boxes(np.array([[0, 0, d, lo, 0]]), np.array([[op.states, 6, d + 1, hi, 19]]))
        got = run_kernel(op, arrays, box, packed=packed, scratch=True)
        np.testing.assert_array_equal(got, whole[:, :, d : d + 1, lo:hi])


@settings(max_examples=8, deadline=None)
@given(hidden=st.integers(1, 150), batch=st.integers(1, 11), isa=st.sampled_from([HOST, AVX2]))
def test_states_that_are_reset_first(hidden, batch, isa):
    """States of every width: register tiles of many vectors, few, and a part of one."""
    op = LAYERS["gru"]
    check(op, operands(op, 3, batch, hidden), isa, packed=[False, True, False])


def test_what_resets_the_state_cannot_read_what_comes_of_it():
    op = replace(LAYERS["gru"], reset=value(5))
    with pytest.raises(ValueError, match="reads operand 5"):
        op.infer([TensorType(a.shape, a.dtype) for a in operands(op, 2, 1, 4)])


def test_part_of_time_is_refused():
    op = LAYERS["lstm"]
    with pytest.raises(ValueError, match="all of time"):
        run_kernel(op, operands(op, 4, 1, 8), Boxes(np.array([[0, 1, 0, 0, 0]]), np.array([[2, 4, 1, 1, 8]])))


@pytest.mark.parametrize("change", ["rank", "hidden", "dtype", "weights", "count"])
def test_operands_that_do_not_fit_are_refused(change):
    op = LAYERS["lstm"]
    types = [TensorType(a.shape, a.dtype) for a in operands(op, 4, 2, 8)]
    wrong = {
        "rank": [TensorType((4, 64), F32), *types[1:]],
        "hidden": [types[0], TensorType((1, 8, 31), F32), *types[2:]],
        "dtype": [*types[:-1], TensorType(types[-1].shape, np.dtype(np.float64))],
        "weights": [types[0], TensorType(types[1].shape, np.dtype(np.int8)), *types[2:]],
        "count": types[:-1],
    }
    with pytest.raises(ValueError, match="Recurrence"):
        op.infer(wrong[change])
