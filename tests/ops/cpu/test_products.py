"""Which products ask for weights ahead of their use: those whose weights L1 does not hold, with work to hide it."""

from __future__ import annotations

import pytest
from conv_cases import conv
from harness import HOST

from brickrt.ops.base import Op
from brickrt.ops.cpu.kernel import choose_kernel, emit_module
from brickrt.ops.cpu.operand import dense
from brickrt.ops.matmul import MatMul
from brickrt.ops.types import Boxes, TensorType


def fetches(op: Op, x: tuple[int, ...], w: tuple[int, ...], block: int) -> bool:
    """Whether the kernel of `op`, with constant weights, has a prefetch of what it reads; its output it writes."""
    types = [TensorType(shape, "float32") for shape in (x, w)]
    out = dense(op.infer(types), block)
    ins = (dense(types[0], block), dense(types[1]))
    family = choose_kernel(op, ins, out, HOST)
    _, classes = family.classify(op, ins, out, Boxes.whole(out.shape), HOST)
    code = str(emit_module(family(op, ins, out, HOST, (False, True), classes[0]), "k"))
    return any("llvm.prefetch" in line and "i32 0, i32 3" in line for line in code.splitlines())


@pytest.mark.parametrize(("channels", "expected"), [(16, False), (512, True)])
def test_deep_convolutions_fetch_weights(channels, expected):
    assert fetches(conv((3, 3), pads=(1, 1)), (1, channels, 8, 8), (64, channels, 3, 3), HOST.lanes) is expected


@pytest.mark.parametrize(("rows", "depth", "expected"), [(64, 32, False), (64, 1024, True), (1, 1024, False)])
def test_deep_products_of_several_rows_fetch_weights(rows, depth, expected):
    assert fetches(MatMul(), (rows, depth), (depth, 64), 1) is expected
