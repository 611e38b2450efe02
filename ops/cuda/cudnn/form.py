"""Forms: what cuDNN is asked to compute, a convolution or matrix product with pointwise operations after it.

A form is plain data: tensors as they lie in memory and the operations on them. Its tensors are numbered as operands of
kernels are: 0 is the output, 1 + i input i.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from brickrt.ops.cuda.kernel import Precision

Ints = tuple[int, ...]
Value = tuple[Literal["tensor", "step", "scalar"], float]
"""Operand of an operation: a tensor of the form; the result of step k, of the product itself if k is −1; a number."""

DTYPES = ("float16", "bfloat16", "float32")


class Unfit(Exception):
    """cuDNN cannot compute an operator; the message says why."""


@dataclass(frozen=True)
class FormTensor:
    """A tensor as cuDNN sees it; `dtype` is one of DTYPES."""

    dims: Ints
    strides: Ints  # elements
    dtype: str

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to the last."""
        last = sum((d - 1) * s for d, s in zip(self.dims, self.strides, strict=True))
        return (last + 1) * np.dtype(np.float32 if self.dtype == "float32" else np.float16).itemsize


@dataclass(frozen=True)
class Pointwise:
    """One operation on every element.

    `fn` is the name of an elementwise function, "swish", or "relu"; a relu gives at most `most`, and `slope` times
    its operand below zero.
    """

    fn: str
    args: tuple[Value, ...]
    most: float = math.inf
    slope: float = 0.0


@dataclass(frozen=True)
class Form:
    """A product and the steps after it, the last of which gives the output.

    `tensors` 0, 1 and 2 are the output and the two factors. `kind` "dgrad" is a transposed convolution: cuDNN has it as
    the gradient of a convolution. Matrix products have no pads, strides and dilations.
    """

    kind: Literal["conv", "dgrad", "matmul"]
    tensors: tuple[FormTensor, ...]
    steps: tuple[Pointwise, ...]
    precision: Precision
    pads: Ints = ()
    pads_end: Ints = ()
    strides: Ints = ()
    dilations: Ints = ()
