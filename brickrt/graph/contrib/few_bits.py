"""Products with weights of few bits, and rows taken of such tables."""

from __future__ import annotations

import numpy as np

from brickrt.graph.contrib.body import ContributedBody, defines
from brickrt.graph.contrib.parts import type_code

BITS = (2, 4, 8)
FLOAT = 1
"""ONNX's number of float32."""


@defines("MatMulNBits", needs=range(3))
def matmul_nbits(b: ContributedBody) -> None:
    """x times the transposed weights [N, blocks, bytes], of which each block has a scale and may have a zero point."""
    depth, columns, block = (b.attribute(name) for name in ("K", "N", "block_size"))
    blocks = -(-depth // block)
    if b.type(2).size != columns * blocks:
        raise ValueError(f"{b.type(2).size} scales for {columns} columns of {blocks} blocks")
    values = b.add("Cast", _unpacked(b, 1, columns, blocks * block), to=FLOAT)
    scale = b.add("Cast", b.add("Reshape", b.input(2), b.integers(columns, blocks)), to=FLOAT)
    zero = _zero(b, columns, blocks)
    if b.input(4):
        groups = b.add("Slice", b.input(4), b.integers(0), b.integers(depth))
        values = _columns(b, values, depth)
        scale, zero = (b.add("Gather", each, groups, axis=1) for each in (scale, zero))
        weights = b.add("Mul", b.add("Sub", values, zero), scale)
    else:
        shape = b.integers(columns, blocks, block)
        scale, zero = (b.add("Unsqueeze", each, b.integers(2)) for each in (scale, zero))
        weights = b.add("Mul", b.add("Sub", b.add("Reshape", values, shape), zero), scale)
        weights = _columns(b, b.add("Reshape", weights, b.integers(columns, -1)), depth)
    kind = type_code(b.type(0).dtype)
    y = b.add("MatMul", b.input(0), b.add("Cast", b.add("Transpose", weights, perm=[1, 0]), to=kind))
    b.give(b.add("Add", y, b.input(5)) if b.input(5) else y)


def _columns(b: ContributedBody, x: str, count: int) -> str:
    """The first columns of a matrix."""
    return b.add("Slice", x, b.integers(0), b.integers(count), b.integers(1))


def _zero(b: ContributedBody, columns: int, blocks: int) -> str:
    """The zero points [N, blocks] as floats: packed like the weights, floats, or the middle of the range."""
    if not b.input(3):
        middle = b.constant(np.float32(1 << (b.attribute("bits", 4) - 1)).reshape(1, 1))
        return b.add("Expand", middle, b.integers(columns, blocks))
    if b.type(3).dtype != np.uint8:
        return b.add("Cast", b.add("Reshape", b.input(3), b.integers(columns, blocks)), to=FLOAT)
    return b.add("Cast", _columns(b, _unpacked(b, 3, columns, 0), blocks), to=FLOAT)


def _unpacked(b: ContributedBody, k: int, rows: int, width: int) -> str:
    """The values of an input of packed bytes as [rows, width], 0 for as many as there are. The lowest bits are first.
    Raises ValueError for other than 2, 4 or 8 bits."""
    bits = b.attribute("bits", 4)
    if bits not in BITS:
        raise ValueError(f"bits {bits} is none of {', '.join(map(str, BITS))}")
    packed = b.add("Reshape", b.input(k), b.integers(rows, -1, 1))
    if bits < 8:
        shifts = b.constant(np.arange(0, 8, bits, dtype=np.uint8))
        shifted = b.add("BitShift", packed, shifts, direction="RIGHT")
        packed = b.add("BitwiseAnd", shifted, b.constant(np.array((1 << bits) - 1, np.uint8)))
    return b.add("Reshape", packed, b.integers(rows, width or -1))


@defines("GatherBlockQuantized", needs=range(3))
def gather(b: ContributedBody) -> None:
    """Rows of a table that is dequantized by blocks along an axis."""
    if b.type(0).dtype == np.uint8 and b.attribute("bits", 4) != 8:
        raise ValueError("values that are packed in bytes have no kernels")
    given = [b.input(k) for k in (0, 2, 3) if b.input(k)]
    rank = len(b.type(0).shape)
    axis, block = b.attribute("quantize_axis", 1) % rank, b.attribute("block_size", 128)
    table = b.add("DequantizeLinear", *given, axis=axis, block_size=block)
    b.give(b.add("Gather", table, b.input(1), axis=b.attribute("gather_axis", 0)))
