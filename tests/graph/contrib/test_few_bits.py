"""MatMulNBits beside NumPy in float64 and ONNX Runtime: weights stay as small as they are stored."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.contrib.contributed import check_contributed

RNG = np.random.default_rng(9)


def packed(values: np.ndarray, bits: int) -> np.ndarray:
    """Rows of values as bytes, the lowest bits first."""
    each = 8 // bits
    padded = np.pad(values, ((0, 0), (0, -values.shape[1] % each)))
    parts = padded.reshape(len(values), -1, each) << (np.arange(each) * bits)
    return parts.sum(2).astype(np.uint8)


def operands(depth: int, columns: int, block: int, bits: int, zeros: str, bias: bool, order: bool) -> list:
    blocks = -(-depth // block)
    q = RNG.integers(0, 1 << bits, (columns, blocks * block))
    zero = {
        "": None,
        "packed": packed(RNG.integers(0, 1 << bits, (columns, blocks)), bits).reshape(-1),
        "floats": RNG.uniform(0, 1 << bits, (columns, blocks)).astype(np.float32),
    }[zeros]
    scale = RNG.uniform(0.01, 0.1, columns * blocks).astype(np.float32)
    groups = RNG.integers(0, blocks, depth).astype(np.int32) if order else None
    x = RNG.standard_normal((2, 3, depth)).astype(np.float32)
    b = RNG.standard_normal(columns).astype(np.float32) if bias else None
    return [x, packed(q, bits).reshape(columns, blocks, -1), scale, zero, groups, b]


def definition(depth: int, columns: int, block: int, bits: int):
    """x times the transposed (values - zero) · scale, in float64."""
    blocks = -(-depth // block)

    def unpacked(x, count):
        shifts = np.arange(0, 8, bits)
        return (x.reshape(columns, -1, 1) >> shifts & ((1 << bits) - 1)).reshape(columns, -1)[:, :count]

    def want(x, q, scale, zero=None, groups=None, bias=None):
        groups = np.arange(depth) // block if groups is None else groups
        if zero is None:
            zero = np.full((columns, blocks), 1 << (bits - 1))
        elif zero.dtype == np.uint8:
            zero = unpacked(zero, blocks)
        values = unpacked(q, depth) - zero.reshape(columns, blocks)[:, groups].astype(np.float64)
        y = x.astype(np.float64) @ (values * scale.reshape(columns, blocks)[:, groups]).T
        return y if bias is None else y + bias

    return want


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["", "packed", "floats"])
@pytest.mark.parametrize(("depth", "columns", "block"), [(64, 10, 32), (48, 7, 16), (72, 9, 32)])
def test_bits_blocks_and_zero_points(bits, zeros, depth, columns, block):
    given = operands(depth, columns, block, bits, zeros, bias=depth == 64, order=False)
    want = definition(depth, columns, block, bits)
    runtime = check_contributed(
        "MatMulNBits", given, want, theirs=bits == 4, K=depth, N=columns, bits=bits, block_size=block
    )
    kinds = [node.op.name for plan in runtime.plan.plans for node in plan.graph.nodes]
    assert ("BlockMatMul" in kinds) == (zeros != "floats")


@pytest.mark.parametrize("zeros", ["", "packed"])
def test_rows_in_another_order(zeros):
    """Each row names the group whose scale it has. ONNX Runtime takes other zero points, which its documents do not."""
    given, want = operands(64, 8, 32, 4, zeros, bias=False, order=True), definition(64, 8, 32, 4)
    check_contributed("MatMulNBits", given, want, theirs=not zeros, K=64, N=8, bits=4, block_size=32)


def test_weights_stay_small():
    """Constants of the program take no more than a fifth more than those of the file."""
    given = operands(512, 256, 32, 4, "packed", bias=False, order=False)
    runtime = check_contributed("MatMulNBits", given, None, K=512, N=256, bits=4, block_size=32)
    held = sum(a.nbytes for plan in runtime.plan.plans for a in plan.graph.constants.values())
    assert held <= 1.2 * sum(a.nbytes for a in given[1:4])
