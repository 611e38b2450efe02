"""Fourier transforms as products with a constant matrix."""

from __future__ import annotations

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import convert, normal_axis, optional, require_float, transpose, view, wide
from brickrt.graph.errors import Unsupported
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul

# The matrix grows with the square of the length; beyond this a fast transform on the host is better.
_MOST_ELEMENTS = 1 << 22


@builds("STFT")
def short_time(b: Builder, node: OnnxNode) -> str:
    """Frames of [batch, samples, parts] are windows of a convolution whose channels are the frequencies."""
    x, window = wide(b, node.inputs[0]), optional(node, 2)
    shape, step = b.type(x).shape, int(b.scalar(node.inputs[1]))
    parts = shape[2] if len(shape) == 3 else 1
    named = optional(node, 3)
    length = int(b.scalar(named)) if named else b.type(window).size if window else shape[1]
    if min(length, step) < 1:
        raise ValueError(f"frames of {length} samples, {step} apart: both must be at least 1")
    matrix = _matrix(length, length, parts, bool(node.attrs.get("onesided", 1)), False)
    weights = np.ones(length) if not window else b.value(window).reshape(-1).astype(np.float64)
    kernel = (matrix.reshape(length, parts, -1) * weights[:, None, None]).transpose(2, 1, 0)
    channels = transpose(b, x, (0, 2, 1)) if parts == 2 else view(b, x, (shape[0], 1, shape[1]))
    op = Conv((length,), (step,), (1,), (0,), (0,), 1, False)
    y = b.emit(op, channels, b.constant(np.ascontiguousarray(kernel, b.type(x).dtype)))
    batch, outputs, frames = b.type(y).shape
    y = view(b, transpose(b, y, (0, 2, 1)), (batch, frames, outputs // 2, 2))
    return convert(b, y, b.type(node.inputs[0]).dtype)


@builds("DFT")
def transform(b: Builder, node: OnnxNode) -> str:
    """Along one axis of a tensor whose last dimension is the real part, or real and imaginary parts."""
    require_float(b, node.inputs[0])
    x, inverse, half = wide(b, node.inputs[0]), bool(node.attrs.get("inverse", 0)), bool(node.attrs.get("onesided", 0))
    rank, named = b.type(x).rank, optional(node, 2)
    axis = int(b.scalar(named)) if named else node.attrs.get("axis", 1 if node.version < 20 else -2)
    axis = normal_axis(axis, rank)
    order = (*(k for k in range(rank) if k not in (axis, rank - 1)), axis, rank - 1)
    *rows, extent, parts = b.type(transpose(b, x, order)).shape
    real = inverse and half
    length = int(b.scalar(optional(node, 1))) if optional(node, 1) else 2 * (extent - 1) if real else extent
    if length < 1:
        raise ValueError(f"a transform of {length} samples")
    found = _real_matrix(extent, length, parts) if real else _matrix(extent, length, parts, half, inverse)
    matrix = found.astype(b.type(x).dtype)
    y = b.emit(MatMul(), view(b, transpose(b, x, order), (*(rows or [1]), extent * parts)), b.constant(matrix))
    y = view(b, y, (*rows, length, 1) if real else (*rows, matrix.shape[1] // 2, 2))
    back = tuple(order.index(k) for k in range(rank))
    return convert(b, transpose(b, y, back), b.type(node.inputs[0]).dtype)


def _matrix(extent: int, length: int, parts: int, half: bool, inverse: bool) -> np.ndarray:
    """[extent * parts, frequencies * 2]: the transform of `length` of which only `extent` samples are not zero.

    Raises Unsupported where it is too large.
    """
    count = length // 2 + 1 if half else length
    _check_size(extent * parts, count * 2, length)
    turns = np.outer(np.arange(extent), np.arange(count)) % length * (2 * np.pi / length)
    real, imaginary = np.cos(turns), np.sin(turns) * (1 if inverse else -1)
    of_real = np.stack([real, imaginary], -1)
    of_imaginary = np.stack([-imaginary, real], -1)
    matrix = np.stack([of_real, of_imaginary][:parts], 1).reshape(extent * parts, count * 2)
    matrix[min(extent, length) * parts :] = 0
    return matrix / length if inverse else matrix


def _real_matrix(extent: int, length: int, parts: int) -> np.ndarray:
    """[extent * parts, length]: the inverse transform of a signal of real numbers, of whose frequencies the first
    `extent` are known. Those between the first and the middle one count twice, for what they are mirrored to.

    Raises Unsupported where it is too large.
    """
    _check_size(extent * parts, length, length)
    frequency = np.arange(extent)
    turns = np.outer(frequency, np.arange(length)) % length * (2 * np.pi / length)
    alone = (frequency == 0) | (2 * frequency == length)
    shares = np.where(2 * frequency > length, 0, np.where(alone, 1, 2)) / length
    found = np.stack([np.cos(turns), np.where(alone[:, None], 0, -np.sin(turns))][:parts], 1)
    return (found * shares[:, None, None]).reshape(extent * parts, length)


def _check_size(rows: int, columns: int, length: int) -> None:
    if rows * columns > _MOST_ELEMENTS:
        raise Unsupported(f"a Fourier transform of {length} samples")
