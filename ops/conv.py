"""Convolution and transposed convolution in any number of dimensions.

Inputs: x [N, C, spatial…], w [M, C/groups, kernel…] (transposed: [C, M/groups, kernel…]), then the bias [M] if `bias`,
then the extra operands of the epilogue, which broadcast to the output. In the epilogue `Arg(0)` is the convolution
with its bias, and `Arg(k)`, k ≥ 1, is extra operand k-1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from brickrt.ops.base import Op
from brickrt.ops.expr import Expr

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Conv(Op):
    name: ClassVar[str] = "Conv"
    kernel: Ints
    strides: Ints
    dilations: Ints
    pads: Ints  # before each spatial dimension
    pads_end: Ints
    groups: int = 1
    bias: bool = False
    epilogue: Expr | None = None


@dataclass(frozen=True)
class ConvTranspose(Op):
    name: ClassVar[str] = "ConvTranspose"
    kernel: Ints
    strides: Ints
    dilations: Ints
    pads: Ints
    pads_end: Ints
    output_padding: Ints
    groups: int = 1
    bias: bool = False
    epilogue: Expr | None = None
