"""Floats rounded to unsigned bytes, against the definition: halves to even, whatever is out of range to its ends."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.cpu.arithmetic.quantize import rounded_byte
from brickrt.ops.expr import apply, arg, cast, const
from brickrt.ops.operators.map import Map
from tests.support.cpu.harness import AVX2, HOST, check

F32, U8 = np.dtype(np.float32), np.dtype(np.uint8)


def byte_of(zero: float) -> Map:
    value = apply("add", apply("round", arg(0, F32)), const(zero, F32))
    return Map(cast(apply("min", apply("max", value, const(0, F32)), const(255, F32)), U8))


def edges() -> np.ndarray:
    """Halves, and what is far off or no number."""
    halves = np.arange(-300, 300, 0.5)
    ends = [np.nan, np.inf, -np.inf, 3e38, -3e38, 2.0**31, 2.0**24 + 2, np.nextafter(np.float32(0.5), np.float32(1))]
    return np.concatenate([halves, ends]).astype(np.float32)


@pytest.mark.parametrize(("zero", "isa"), [(0, HOST), (7, AVX2), (255, HOST)])
def test_bytes(zero, isa):
    check(byte_of(zero), [edges()], isa)


@pytest.mark.parametrize(("zero", "isa"), [(0, HOST), (7, AVX2), (255, HOST), (None, HOST)])
def test_bytes_by_a_computed_zero_point(zero, isa):
    """One for all, or (None) one for each."""
    value = apply("add", apply("round", arg(0, F32)), cast(arg(1, U8), F32))
    op = Map(cast(apply("min", apply("max", value, const(0, F32)), const(255, F32)), U8))
    assert rounded_byte(op.expr) is not None
    x = edges()[None] if zero is None else edges()
    zeros = np.arange(256, dtype=np.uint8)[:, None] if zero is None else np.array(zero, np.uint8)
    check(op, [x, zeros], isa)


@pytest.mark.parametrize("zero", [0.5, -1, 256])
def test_other_offsets_are_computed_as_they_are_written(zero):
    op = byte_of(zero)
    assert rounded_byte(op.expr) is None
    check(op, [np.arange(-3, 300, 0.5).astype(np.float32)], AVX2)
