"""Convolution as a product of matrices (igemm.cuh): 1 to 3 dimensions, any groups, strides, dilations and pads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from brickrt.ops.cuda.kernel import Kernel, kernel_for
from brickrt.ops.cuda.operand import VECTOR, Operand
from brickrt.ops.cuda.printing.epilogue import HEADERS, WIDEST
from brickrt.ops.cuda.printing.functions import device_function
from brickrt.ops.cuda.printing.traits import constants_text
from brickrt.ops.cuda.products.block_tile import Core, choose_core
from brickrt.ops.cuda.products.conv_base import ConvBase, offset_type
from brickrt.ops.cuda.products.depthwise import DepthwiseConv, suits_depthwise
from brickrt.ops.operators.conv import Conv
from brickrt.ops.types import is_floating


@dataclass(frozen=True)
class ProductConv(ConvBase):
    """A convolution as a product: its depth runs over taps and, for each tap, over `padded_channels` channels."""

    headers: ClassVar[tuple[str, ...]] = ("igemm.cuh", *HEADERS)
    name: ClassVar[str] = "conv"  # of the device function

    @property
    def columns(self) -> int:
        """Output channels of a group; a convolution with several parts has one group."""
        return self.out.shape[1] // self.op.groups

    @property
    def taps(self) -> int:
        """Taps that one output sums, at most."""
        return math.prod(self.op.kernel)

    @property
    def product(self) -> tuple[int, int, int]:
        """Rows, columns and depth of one of the products of the largest box."""
        e = self.extents
        pixels, columns = e[0] * math.prod(self.pixels(e[2:])), min(e[1], self.columns)
        return pixels, columns * self.op.gate_parts, self.taps * self.channels

    @property
    def products(self) -> int:
        """How many products the largest box is: one per group of it."""
        return -(-self.extents[1] // self.columns)

    @property
    def all_columns(self) -> int:
        """Columns of all products of the whole output."""
        return self.out.shape[1] * self.op.gate_parts

    @cached_property
    def core(self) -> Core:
        """The tile for the largest box."""
        unit, together = WIDEST * self.op.gate_parts, self.channels if self.ins[0].shared else 0
        return choose_core(self.ins[0].dtype, self.precision, *self.product, unit, self.most_shared, together)

    def pixels(self, extents: Sequence[int]) -> Sequence[int]:
        """Spatial extents of the rows of one product, for a box with these extents."""
        return extents

    @property
    def padded_channels(self) -> int:
        """Channels to a tap, up to whole words; those beyond the input's are zero."""
        return -(-self.channels // self.core.per_word) * self.core.per_word

    @property
    def padded_columns(self) -> int:
        """Columns of the packed weights, up to whole vectors of words; of several parts, up to whole runs of each."""
        if self.op.gate_parts > 1:
            return -(-self.columns // WIDEST) * WIDEST * self.op.gate_parts
        whole = max(VECTOR // self.core.word, 1) if self.vectors else 1
        return -(-self.columns // whole) * whole

    @property
    def vectors(self) -> bool:
        """Whether operands of this type are copied in vectors of 16 bytes at all."""
        return is_floating(self.ins[0].dtype)

    @property
    def row_vector(self) -> int:
        """Channels of the input that are copied together."""
        x = self.ins[0]
        width = VECTOR // x.dtype.itemsize
        fits = self.vectors and x.strides[1] == 1 and x.vector >= width and self.channels % width == 0
        return width if fits else 1

    @property
    def shared(self) -> int:
        """As much as the tile takes."""
        return self.core.shared

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        """Weights as `pack_weights` says; the bias as it is."""
        return self.pack_weights(array) if i == 1 else np.ascontiguousarray(array)

    def pack_weights(self, w: np.ndarray) -> np.ndarray:
        """[M, C/g, k…] → [g, taps · channels / together, columns, together], zeros for padding.

        With several parts, the columns are runs of WIDEST channels of each part in turn.
        """
        rows = w.reshape(self.op.groups, -1, self.channels, math.prod(self.op.kernel))
        if self.op.gate_parts > 1:
            runs = self.padded_columns // WIDEST // self.op.gate_parts
            full = np.zeros((self.op.gate_parts, runs * WIDEST, *rows.shape[2:]), w.dtype)
            full[:, : self.columns] = rows.reshape(self.op.gate_parts, self.columns, *rows.shape[2:])
            full = full.reshape(self.op.gate_parts, runs, WIDEST, *rows.shape[2:])
            rows = full.swapaxes(0, 1).reshape(1, self.padded_columns, *rows.shape[2:])
        return self.pack_taps(rows.transpose(0, 3, 2, 1))

    def pack_taps(self, w: np.ndarray) -> np.ndarray:
        """[g, taps, C/g, M/g] as `pack_weights` returns it."""
        full = np.zeros((self.op.groups, w.shape[1], self.padded_channels, self.padded_columns), w.dtype)
        full[:, :, : self.channels, : w.shape[-1]] = w
        return self.core.pack(full.reshape(self.op.groups, -1, self.padded_columns))

    def emit(self, name: str) -> str:
        """Traits for igemm.cuh, and a function that hands them to its template."""
        traits = f"struct {name}_conv {{\n{self.settings()}{self.epilogue.emit()}}};\n"
        call = f"    brick::{self.name}<{name}_conv, {self.core.text()}>(s, at, shared);"
        return traits + device_function(name, call)

    def settings(self) -> str:
        """The members of the traits that igemm.cuh names, but for `finish`."""
        constants = {
            "PADDED_CHANNELS": self.padded_channels,
            "PADDED_COLUMNS": self.padded_columns,
            "TOGETHER": self.core.together,
            "A_VECTOR": self.row_vector,
            "B_VECTOR": int(self.packed[1] and self.vectors),
        }
        return f"using Offset = {offset_type(self.ins[0])};\n{constants_text(constants)}{self.window_text()}"


@kernel_for(Conv)
def _choose(op: Conv, ins: Sequence[Operand], out: Operand) -> type[Kernel]:
    if op.channel_scaled:
        raise LookupError("no CUDA kernel for convolutions whose input is scaled by channel")
    return DepthwiseConv if suits_depthwise(op, ins[0].shape[1], out.shape[1]) else ProductConv
