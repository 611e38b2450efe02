"""Convolutions with few multiplications per output (depthwise.cuh): depthwise ones, and groups of few channels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from brickrt.ops.cuda.kernel import THREADS
from brickrt.ops.cuda.printing.epilogue import HEADERS, WIDEST
from brickrt.ops.cuda.printing.functions import device_function
from brickrt.ops.cuda.printing.traits import constants_text
from brickrt.ops.cuda.printing.types import compute_ctype, is_half
from brickrt.ops.cuda.products.conv_base import ConvBase
from brickrt.ops.operators.conv import Conv

FEW_COLUMNS = 8  # of a group: narrower than any tile
FEW_PRODUCTS = 128
PARTS_OF_TILES = (1, 2, 4)  # of a product that tiles can be cut into
NEIGHBOURS = 4  # outputs along a row that one thread sums, at most
THREAD_VALUES = 32  # sums, and weights of a row of taps, that a thread keeps, each
MOST_KEPT_TAPS = 7  # of a row


def suits_depthwise(op: Conv, channels: int, columns: int) -> bool:
    """Whether a group has so few channels that tiles of a product would mostly compute zeros."""
    if op.gate_parts > 1 and (op.groups > 1 or op.gate_parts not in PARTS_OF_TILES):
        return True
    channels, columns = channels // op.groups, columns // op.groups
    return op.groups > 1 and columns <= FEW_COLUMNS and channels * math.prod(op.kernel) <= FEW_PRODUCTS


@dataclass(frozen=True)
class DepthwiseConv(ConvBase):
    """Every thread sums a vector of channels of some neighbouring outputs, without shared memory."""

    headers: ClassVar[tuple[str, ...]] = ("depthwise.cuh", *HEADERS)

    @property
    def very(self) -> bool:
        """Whether every channel is a group of its own."""
        return self.channels == 1 and self.columns == 1

    @property
    def most(self) -> int:
        """Fewer where a vector would cross groups, or the weights of a row of taps would not stay in registers."""
        if not self.very:
            return math.gcd(WIDEST, self.columns, self.out.shape[1])
        return WIDEST if self.op.kernel[-1] * WIDEST <= THREAD_VALUES else WIDEST // 2

    @property
    def vector_columns(self) -> int:
        """All of them: a vector has channels of several groups, or a group has several vectors."""
        return self.out.shape[1] * self.op.gate_parts

    @property
    def sliding(self) -> bool:
        """Whether a thread loads the inputs of a row once for all its outputs."""
        return self.op.kernel[-1] <= MOST_KEPT_TAPS and self.op.dilations[-1] <= 2 and self.op.strides[-1] <= 2

    @property
    def neighbours(self) -> int:
        """Outputs along a row that a thread sums: fewer where threads of the block would be idle."""
        e, r = self.extents, min(NEIGHBOURS, max(THREAD_VALUES // (self.epilogue.width * self.op.gate_parts), 1))
        vectors = -(-e[1] // self.epilogue.width)
        while r > 1 and vectors * e[0] * math.prod(e[2:-1]) * -(-e[-1] // r) < THREADS:
            r //= 2
        return r

    @property
    def padded_outputs(self) -> int:
        """Channels of the packed weights, up to whole vectors."""
        return -(-self.out.shape[1] // WIDEST) * WIDEST

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        """Weights [M, C/g, k…] → [taps, C/g, parts, channels], zeros for padding; of half types in float32, so that
        they need not be converted for each pixel."""
        if i != 1:
            return np.ascontiguousarray(array)
        parts, outputs = self.op.gate_parts, self.out.shape[1]
        kept = np.dtype(np.float32) if is_half(array.dtype) else array.dtype
        full = np.zeros((math.prod(self.op.kernel), self.channels, parts, self.padded_outputs), kept)
        full[..., :outputs] = array.reshape(parts, outputs, self.channels, -1).transpose(3, 2, 0, 1)
        return full

    def emit(self, name: str) -> str:
        """Traits for depthwise.cuh, and a function that hands them to its template."""
        x, width = self.ins[0], self.epilogue.width
        whole = self.op.gate_parts == 1 or self.out.shape[1] % width == 0
        vector = min(width, 16 // x.dtype.itemsize)
        constants = {
            "OUTPUTS": self.padded_outputs,
            "R": self.neighbours,
            "SLIDING": int(self.sliding),
            "X_ALIGNED": int(x.strides[1] == 1 and x.vector >= vector and whole),
        }
        traits = (
            f"struct {name}_conv {{\nusing A = {compute_ctype(x.dtype)};\n{constants_text(constants)}"
            f"{self.window_text()}{self.epilogue.emit()}}};\n"
        )
        return traits + device_function(name, f"    brick::depthwise<{name}_conv>(s, at);")
