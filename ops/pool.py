"""Pooling windows over x [N, C, spatial…]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from brickrt.ops.base import Op

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Pool(Op):
    """Max, average or Lp pooling (ONNX MaxPool, AveragePool, LpPool); `p` is the norm of Lp."""

    name: ClassVar[str] = "Pool"
    kind: Literal["max", "average", "lp"]
    kernel: Ints
    strides: Ints
    dilations: Ints
    pads: Ints
    pads_end: Ints
    ceil: bool = False
    count_include_pad: bool = False
    p: int = 2
