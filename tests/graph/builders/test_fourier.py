"""Fourier transforms against ONNX Runtime and ONNX's reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.graphs.builders_harness import check as compare

RANDOM = np.random.default_rng(3)


def check(op_type: str, version: int, inputs: list[np.ndarray | None], **attrs: object) -> None:
    """ONNX Runtime computes its factors in single precision."""
    compare(op_type, version, inputs, tolerance=1e-4, **attrs)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("shape", [(2, 50), (2, 50, 1)])
def test_frames_as_long_as_the_window(shape, onesided):
    check("STFT", 17, [floats(*shape), np.array(7), floats(12)], onesided=onesided)


def test_frames_of_a_length_without_a_window():
    check("STFT", 17, [floats(1, 40, 1), np.array(9), None, np.array(16)])


def test_frames_of_complex_numbers():
    check("STFT", 17, [floats(2, 30, 2), np.array(5), floats(10)], onesided=0)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_axes(axis, parts):
    check("DFT", 17, [floats(3, 4, 5, parts)], axis=axis)


@pytest.mark.parametrize("inverse", [0, 1])
def test_one_signal_alone(inverse):
    compare("DFT", 20, [floats(6, 2), None, np.array(0)], oracle="reference", inverse=inverse)


@pytest.mark.parametrize("length", [4, 7, 10])
def test_cut_and_padded(length):
    check("DFT", 17, [floats(2, 7, 1), np.array(length)], axis=1, onesided=1)


def test_inverse():
    check("DFT", 17, [floats(2, 7, 2)], axis=1, inverse=1)


def test_axis_as_an_input():
    compare("DFT", 20, [floats(2, 6, 3, 1), None, np.array(-2)], oracle="reference")


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("length", [None, 7, 8, 5, 12])
def test_inverse_to_real_numbers(length, parts):
    """The frequencies are those of 8 numbers, of fewer, which drop some, or of more, whose others are zeros. Imaginary
    parts of those that are their own mirror image count for nothing."""
    named = None if length is None else np.array(length)
    compare("DFT", 20, [floats(2, 5, 3, parts), named, np.array(1)], oracle="reference", inverse=1, onesided=1)
