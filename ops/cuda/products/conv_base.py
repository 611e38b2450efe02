"""The base of convolution kernels: groups, the epilogue, and the window as members of traits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brickrt.ops.cuda.kernel import Kernel
from brickrt.ops.cuda.operand import Operand
from brickrt.ops.cuda.printing.epilogue import WIDEST, EpilogueText
from brickrt.ops.cuda.printing.traits import choose_text, constants_text
from brickrt.ops.cuda.printing.types import ctype
from brickrt.ops.operators.conv import Conv, ConvTranspose


def offset_type(operand: Operand) -> str:
    """A C++ integer type that holds the offset of any element inside one image."""
    reach = sum((e - 1) * s for e, s in zip(operand.shape[1:], operand.strides[1:]))
    return "int" if reach < 2**31 else "long long"


@dataclass(frozen=True)
class ConvBase(Kernel):
    """Base of the kernels for convolutions and transposed convolutions."""

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
        """Columns of the product that belong to one group."""
        return self.out.shape[1] * self.op.gate_parts // self.op.groups

    @property
    def vector_columns(self) -> int:
        """The columns among which vectors of the output begin at multiples of their length: those of a group."""
        return self.columns

    @cached_property
    def epilogue(self) -> EpilogueText:
        """Text of bias, epilogue and store."""
        op, rest = self.op, slice(2, None)
        return EpilogueText(
            op.epilogue,
            self.ins[0].dtype,
            op.bias,
            self.ins[rest],
            self.packed[rest],
            self.out,
            axis=1,
            columns=self.vector_columns,
            most=self.most,
            parts=op.gate_parts,
        )

    @property
    def most(self) -> int:
        """Output channels that one thread finishes together, at most."""
        return WIDEST

    def checked(self) -> list[int]:
        """Per spatial dimension, 1 where taps may read beyond the input, else 0."""
        if isinstance(self.op, ConvTranspose):
            return [1] * self.rank
        op, x, out = self.op, self.ins[0].shape[2:], self.out.shape[2:]
        lo, hi = op.window.reach(np.zeros(self.rank, np.int64), np.asarray(out))
        return [int(a < 0 or b > e) for a, b, e in zip(lo, hi, x)]

    def window_text(self) -> str:
        """The members of the traits that describe window and operands."""
        op, x, w = self.op, self.ins[0], self.ins[1]
        constants = {
            "D": self.rank,
            "PARTS": self.op.gate_parts,
            "OUT": self.out.shape[1],
            "CHANNELS": self.channels,
            "COLUMNS": self.columns,
            "PACKED": int(self.packed[1]),
            "WIDTH": self.epilogue.width,
            "ROWS_INNER": int(self.epilogue.scattered),
        }
        tables = {
            "kernel": op.kernel,
            "stride": op.strides,
            "dilation": op.dilations,
            "pad": op.pads,
            "extent": x.shape[2:],
            "checked": self.checked(),
        }
        chosen = "".join(choose_text("int", name, values) for name, values in tables.items())
        strides = choose_text("long long", "x", x.strides) + choose_text("long long", "w", w.strides)
        return f"using T = {ctype(x.dtype)};\n{constants_text(constants)}{chosen}{strides}"

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of the largest box."""
        return self.largest or self.out.shape
