"""Which products ask for weights ahead of their use: all with work to hide it, those that L1 does not hold twice."""

from __future__ import annotations

import pytest

from brickrt.ops.base import Op
from brickrt.ops.cpu.kernel import choose_kernel
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.sized_kernel import emit_sized
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.conv_cases import conv
from tests.support.cpu.harness import HOST


def fetches(op: Op, x: tuple[int, ...], w: tuple[int, ...], block: int) -> set[str]:
    """Where the kernel of `op`, with constant weights, asks for what it reads to be brought; its output it writes."""
    types = [TensorType(shape, "float32") for shape in (x, w)]
    out = dense(op.infer(types), block)
    ins = (dense(types[0], block), dense(types[1]))
    family = choose_kernel(op, ins, out, HOST)
    _, classes = family.classify(op, ins, out, Boxes.whole(out.shape), HOST)
    code = str(emit_sized(family(op, ins, out, HOST, (False, True), classes[0]), "k")[0])
    asked = [line for line in code.splitlines() if "llvm.prefetch" in line]
    return {level for level, hint in (("L1", 3), ("L2", 2)) if any(f"i32 0, i32 {hint}" in line for line in asked)}


@pytest.mark.parametrize(("channels", "expected"), [(16, {"L2"}), (512, {"L1", "L2"})])
def test_deep_convolutions_fetch_weights(channels, expected):
    assert fetches(conv((3, 3), pads=(1, 1)), (1, channels, 8, 8), (64, channels, 3, 3), HOST.lanes) == expected


@pytest.mark.parametrize(("rows", "depth", "expected"), [(64, 32, {"L2"}), (64, 1024, {"L1", "L2"}), (1, 1024, set())])
def test_deep_products_of_several_rows_fetch_weights(rows, depth, expected):
    assert fetches(MatMul(), (rows, depth), (depth, 64), 1) == expected
