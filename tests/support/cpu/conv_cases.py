"""Convolutions to try kernels on, and the check that a tensor computed brick by brick is the tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.ops.base import Op, evaluate_whole
from brickrt.ops.cpu.all_kernels import KernelMaker
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import choose_kernel
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.types import Boxes, TensorType
from brickrt.plan.geometry.bricks import BrickGrid
from tests.support.cpu.harness import GuardedMemory, call, check, from_blocked, packed_constant, stored

Ints = tuple[int, ...]


@dataclass(frozen=True)
class ConvCase:
    """A convolution of `x` [C, spatial…] to `m` channels; with `plain`, `x` is read from a plain tensor, with
    `plain_out` the result written to one."""

    op: Conv | ConvTranspose
    x: Ints
    m: int
    n: int = 1
    plain: bool = False
    plain_out: bool = False

    def arrays(self, dtype: str = "float32", seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        groups, c = self.op.groups, self.x[0]
        w = (c, self.m // groups) if isinstance(self.op, ConvTranspose) else (self.m, c // groups)
        shapes: list[Ints] = [(self.n, *self.x), (*w, *self.op.kernel)] + ([(self.m,)] if self.op.bias else [])
        return [rng.standard_normal(shape).astype(dtype) for shape in shapes]

    def blocks(self, lanes: int) -> list[int]:
        return [1 if self.plain else lanes, 1, 1][: 2 + self.op.bias]

    def out_block(self, lanes: int) -> int:
        return 1 if self.plain_out else lanes


def conv(
    kernel: Ints,
    strides: Ints = (),
    dilations: Ints = (),
    pads: Ints = (),
    end: Ints | None = None,
    groups: int = 1,
    bias: bool = False,
) -> Conv:
    one, none = (1,) * len(kernel), (0,) * len(kernel)
    pads = pads or none
    return Conv(kernel, strides or one, dilations or one, pads, pads if end is None else end, groups, bias)


def transposed(
    kernel: Ints,
    strides: Ints = (),
    dilations: Ints = (),
    pads: Ints = (),
    extra: Ints = (),
    groups: int = 1,
    bias: bool = False,
) -> ConvTranspose:
    one, none = (1,) * len(kernel), (0,) * len(kernel)
    pads = pads or none
    return ConvTranspose(kernel, strides or one, dilations or one, pads, pads, extra or none, groups, bias)


def middle(shape: Sequence[int], lanes: int) -> Boxes:
    """A box that the tensor's edges do not touch where it is large enough, from the second block of channels on."""
    lo = [0, lanes if shape[1] > lanes else 0, *(1 if e > 1 else 0 for e in shape[2:])]
    hi = [shape[0], shape[1], *(e - 1 if e > 2 else e for e in shape[2:])]
    return Boxes.one(lo, hi)


def check_conv(
    case: ConvCase,
    isa: Isa,
    *,
    packed: bool = True,
    dtype: str = "float32",
    scratch: bool = True,
    tolerance: float = 3e-5,
) -> None:
    """The whole tensor, and a box of its middle: in place, or alone in memory if `scratch` is on and vectors are wide.

    So tests on both instruction sets have it both ways.
    """
    arrays, lanes = case.arrays(dtype), isa.lanes
    shape = case.op.infer([TensorType(a.shape, a.dtype) for a in arrays]).shape
    constant = [False, *[packed] * (1 + case.op.bias)]
    tolerance = 1e-12 if dtype == "float64" else tolerance
    how = {
        "blocks": case.blocks(lanes),
        "out_block": case.out_block(lanes),
        "packed": constant,
        "rtol": tolerance,
        "atol": tolerance,
    }
    whole, part = Boxes.whole(shape), middle(shape, lanes)
    boxes, parts = ([whole], [part]) if scratch and lanes == 16 else ([whole, part], [])
    check(case.op, arrays, isa, boxes=boxes, parts=parts, **how)


def by_bricks(
    op: Op,
    arrays: Sequence[np.ndarray],
    brick: Ints,
    isa: Isa,
    blocks: Sequence[int],
    out_block: int,
    packed: Sequence[bool],
    kernel_cls: KernelMaker | None = None,
) -> tuple[np.ndarray, int]:
    """The output, each brick written by the kernel of its class, and the number of classes."""
    types = [TensorType(a.shape, a.dtype) for a in arrays]
    kind = op.infer(types)
    ins = [stored(a, b) for a, b in zip(arrays, blocks, strict=True)]
    out = stored(np.full(kind.shape, np.nan, kind.dtype), out_block)
    operands = tuple(i.operand for i in ins)
    boxes = BrickGrid(kind.shape, brick).boxes()
    family = kernel_cls or choose_kernel(op, operands, out.operand, isa)
    which, classes = family.classify(op, operands, out.operand, boxes, isa)
    kernels = [family(op, operands, out.operand, isa, tuple(packed), c) for c in classes]
    pairs = list(enumerate(zip(arrays, packed, strict=True)))
    constants = [GuardedMemory(packed_constant(kernels[0], i, a)) if p else None for i, (a, p) in pairs]
    origins = [out.origin, *(c.address if c else i.origin for c, i in zip(constants, ins, strict=True))]
    work = GuardedMemory(np.full(max(1, *(k.workspace // 4 for k in kernels)), np.nan, np.float32))
    for k, number in enumerate(which):
        call(kernels[number], [*origins, work.address], boxes[k])
    array = out.memory.array
    return (from_blocked(array, kind.shape[1]) if out_block > 1 else array), len(classes)


def check_bricks(case: ConvCase, brick: Ints, isa: Isa, classes: int | None = None) -> None:
    """Brick by brick, `brick[1]` counted in blocks of channels."""
    arrays, lanes = case.arrays(), isa.lanes
    edges = (brick[0], brick[1] * lanes, *brick[2:])
    packed = [False, *[True] * (1 + case.op.bias)]
    got, found = by_bricks(case.op, arrays, edges, isa, case.blocks(lanes), case.out_block(lanes), packed)
    np.testing.assert_allclose(got, evaluate_whole(case.op, arrays), rtol=3e-5, atol=3e-5)
    assert classes in (None, found)
