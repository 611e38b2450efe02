"""The element types that convolutions and matrix products take, and what they sum in.

A product of quantized integers multiplies uint8 by int8 and sums in int32, its bias too. Offsets of the operands (zero
points) are no part of it: that of the input is a constant of each output channel, which is added to the bias.

The bias of a product of bfloat16 may be float32, like its sums. A product of float32 by float16 is one of float32.
Where a model has float16, which is 11 bits, for the factors and for the result, what is multiplied here has float32 for
them, and marks say so (`halves`): then kernels may multiply 16 bits of each factor, which loses a twentieth of what it
may lose to round them to float16.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from brickrt.ops.definitions.expressions import FLOAT64, compute_type
from brickrt.ops.types import TensorType

FACTORS = (np.dtype(np.uint8), np.dtype(np.int8))
SUMS = np.dtype(np.int32)
F16, F32, BF16 = (np.dtype(t) for t in (np.float16, np.float32, ml_dtypes.bfloat16))


def is_integer_product(first: TensorType, second: TensorType) -> bool:
    """Whether factors of these types are multiplied as integers."""
    return (first.dtype, second.dtype) == FACTORS


def product_type(name: str, main: Sequence[TensorType]) -> np.dtype:
    """The type of the sums of a product whose main inputs are `main`: both factors, then bias and the like.

    Raises ValueError where the types do not go together.
    """
    first, second, *others = main
    if first.dtype == np.float32 and second.dtype == FACTORS[0]:  # dequantized while it is multiplied
        return first.dtype
    sums = SUMS if is_integer_product(first, second) else first.dtype
    known = sums == SUMS or second.dtype == sums or (sums, second.dtype) == (F32, F16)
    if not known or any(t.dtype != sums and (sums, t.dtype) != (BF16, F32) for t in others):
        raise ValueError(f"{name}: operands of types {', '.join(map(str, main))}")
    return sums


def exact_type(first: TensorType, second: TensorType) -> np.dtype:
    """The type in which the definition multiplies: float64 is exact for sums of integers below 2**53."""
    return FLOAT64 if is_integer_product(first, second) else compute_type(first.dtype)


def wrapped_sums(product: np.ndarray, first: TensorType, second: TensorType) -> np.ndarray:
    """The sums of a product: integers wrap to 32 bits, floats stay as they are."""
    return product.astype(np.int64).astype(SUMS) if is_integer_product(first, second) else product
