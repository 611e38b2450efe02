"""Convolution as a product of matrices (igemm.cuh), in 1 to 3 dimensions; any groups, strides, dilations and pads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.conv import Conv, ConvTranspose
from brickrt.ops.cuda.kernel import Kernel, kernel_for
from brickrt.ops.cuda.operand import VECTOR, Operand
from brickrt.ops.cuda.tail import HEADERS, Tail, choose_text
from brickrt.ops.cuda.tile import Core, choose_core
from brickrt.ops.cuda.types_cuda import ctype, is_float


def offset_type(operand: Operand) -> str:
    """A type that holds the offset of any element inside one image."""
    reach = sum((e - 1) * s for e, s in zip(operand.shape[1:], operand.strides[1:]))
    return "int" if reach < 2**31 else "long long"


@dataclass(frozen=True)
class ConvBase(Kernel):
    """What convolutions and transposed ones share."""

    op: Conv | ConvTranspose

    @property
    def rank(self) -> int:
        """Spatial dimensions."""
        return len(self.op.kernel)

    @property
    def channels(self) -> int:
        """Input channels of a group."""
        return self.ins[0].shape[1] // self.op.groups

    @property
    def columns(self) -> int:
        """Output channels of a group."""
        return self.out.shape[1] // self.op.groups

    @cached_property
    def tail(self) -> Tail:
        op, rest = self.op, slice(2, None)
        return Tail(
            op.epilogue, self.ins[0].dtype, op.bias, self.ins[rest], self.packed[rest], self.out, 1, self.columns
        )

    @property
    def extents(self) -> tuple[int, ...]:
        """Of the largest box."""
        return self.largest or self.out.shape


@dataclass(frozen=True)
class ProductConv(ConvBase):
    """A convolution whose depth is cut into words: `padded_channels` to a tap, of which the last may be zero."""

    headers = ("igemm.cuh", *HEADERS)

    @property
    def taps(self) -> int:
        """Taps that one output sums, at most."""
        return math.prod(self.op.kernel)

    @cached_property
    def core(self) -> Core:
        e, dtype = self.extents, self.ins[0].dtype
        return choose_core(dtype, self.precision, e[0] * math.prod(e[2:]), min(e[1], self.columns), self.depth)

    @property
    def depth(self) -> int:
        return self.taps * self.channels

    @property
    def padded_channels(self) -> int:
        return -(-self.channels // self.core.pair) * self.core.pair

    @property
    def padded_columns(self) -> int:
        """Columns of the packed weights, up to whole vectors of words."""
        whole = max(VECTOR // self.core.word, 1) if self.vectors else 1
        return -(-self.columns // whole) * whole

    @property
    def vectors(self) -> bool:
        """Whether the type is copied in vectors of 16 bytes at all."""
        return is_float(self.ins[0].dtype)

    @property
    def row_vector(self) -> int:
        """Channels of the input that are copied together."""
        x = self.ins[0]
        width = VECTOR // x.dtype.itemsize
        fits = self.vectors and x.strides[1] == 1 and x.vector >= width and self.channels % width == 0
        return width if fits else 1

    @property
    def shared(self) -> int:
        return self.core.shared

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        return self.pack_weights(array) if i == 1 else np.ascontiguousarray(array)

    def pack_weights(self, w: np.ndarray) -> np.ndarray:
        """[M, C/g, k…] → [g, taps · channels / pair, columns, pair], zeros for padding."""
        return self.pack_taps(w.reshape(self.op.groups, self.columns, self.channels, -1).transpose(0, 3, 2, 1))

    def pack_taps(self, w: np.ndarray) -> np.ndarray:
        """[g, taps, C/g, M/g] as `pack_weights` returns it."""
        g, taps, pair = self.op.groups, w.shape[1], self.core.pair
        full = np.zeros((g, taps, self.padded_channels, self.padded_columns), w.dtype)
        full[:, :, : self.channels, : self.columns] = w
        words = full.reshape(g, taps * self.padded_channels // pair, pair, self.padded_columns)
        return np.ascontiguousarray(words.swapaxes(2, 3))

    def checked(self) -> list[int]:
        """Per spatial dimension, whether taps may read padding."""
        op, x, out = self.op, self.ins[0].shape[2:], self.out.shape[2:]
        lo, hi = op.window.reach(np.zeros(self.rank, np.int64), np.asarray(out))
        return [int(a < 0 or b > e) for a, b, e in zip(lo, hi, x)]

    def emit(self, name: str) -> str:
        return (
            f"struct {name}_conv {{\n{self.settings()}{self.tail.emit()}}};\n"
            f"BRICK_DEVICE void {name}(const brick::Step& s, char* const* at, char* shared) {{\n"
            f"    brick::{self.function}<{name}_conv, {self.core.text()}>(s, at, shared);\n}}\n"
        )

    @property
    def function(self) -> str:
        return "conv"

    def settings(self) -> str:
        """The members that igemm.cuh names."""
        op, x, w = self.op, self.ins[0], self.ins[1]
        constants = {
            "D": self.rank,
            "CHANNELS": self.channels,
            "COLUMNS": self.columns,
            "PADDED_CHANNELS": self.padded_channels,
            "PADDED_COLUMNS": self.padded_columns,
            "PACKED": int(self.packed[1]),
            "A_VECTOR": self.row_vector,
            "B_VECTOR": int(self.packed[1] and self.vectors),
            "WIDTH": self.tail.width,
            "ROWS_INNER": int(self.tail.scattered),
        }
        tables = {
            "kernel": op.kernel,
            "stride": op.strides,
            "dilation": op.dilations,
            "pad": op.pads,
            "extent": x.shape[2:],
            "checked": self.checked(),
        }
        numbers = "".join(f"static constexpr int {name} = {value};\n" for name, value in constants.items())
        chosen = "".join(choose_text("int", name, values) for name, values in tables.items())
        strides = choose_text("long long", "x", x.strides) + choose_text("long long", "w", w.strides)
        return f"using T = {ctype(x.dtype)};\nusing Offset = {offset_type(x)};\n{numbers}{chosen}{strides}"


@kernel_for(Conv)
def _choose(op: Op, ins: Sequence[Operand], out: Operand) -> type[Kernel]:
    return ProductConv
