"""Convolutions and operands that tests of CUDA kernels for products share, and the comparison with the definition."""

from __future__ import annotations

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from brickrt.ops.cuda.kernel import THREADS
from brickrt.ops.expr import apply, arg
from brickrt.ops.operators.conv import Conv
from brickrt.ops.types import Boxes
from tests.support.cuda.host_kernels import expected, run_on_host

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5, "float64": 1e-12}


def conv(kernel, strides=None, dilations=None, pads=None, pads_end=None, groups=1, bias=False, epilogue=None, parts=1):
    ones, zeros = (1,) * len(kernel), (0,) * len(kernel)
    pads = pads or zeros
    ends = pads if pads_end is None else pads_end
    return Conv(kernel, strides or ones, dilations or ones, pads, ends, groups, bias, epilogue, parts)


def values(shape, dtype, seed=0):
    x = np.random.default_rng(seed).standard_normal(shape)
    return (x * 8 if np.dtype(dtype).kind in "iu" else x).astype(dtype)


def operands(op, x, channels, dtype, extras=()):
    """Input, weights, bias if there is one, and extra operands; deterministic."""
    shapes = [x, (channels, x[1] // op.groups, *op.kernel), *[(channels,)] * op.bias, *extras]
    return [values(shape, dtype, seed) for seed, shape in enumerate(shapes)]


def some_boxes(shape, seed=0, cuts=2):
    """Boxes that cover a shape: each dimension cut at random, some boxes empty."""
    rng = np.random.default_rng(seed)
    ends = [np.sort(np.concatenate([[0, e], rng.integers(0, e + 1, cuts)])) for e in shape]
    lo, hi = (np.array(np.meshgrid(*part)).reshape(len(shape), -1).T for part in zip(*((e[:-1], e[1:]) for e in ends)))
    return Boxes(lo, hi)


def close(result, wanted, tolerance):
    """Relative to the largest value, since sums cancel."""
    result, wanted = result.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_allclose(result, wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max(initial=1e-30))


def check(op, arrays, layout="last", packed=True, boxes=None, precision="fp32"):
    layouts = [layout if a.ndim > 2 and k != 1 else "plain" for k, a in enumerate(arrays)] + [layout]
    constant = [False, packed, *([packed] * op.bias), *[False] * (len(arrays) - 2 - op.bias)]
    result = run_on_host(op, arrays, layouts, constant, boxes, precision, THREADS)
    exact = arrays[0].dtype.kind in "iu"
    tolerance = 0 if exact else 2e-3 if precision == "tf32" else TOLERANCE[arrays[0].dtype.name]
    close(result, expected(op, arrays), tolerance)


def silu(dtype):
    """x · sigmoid(x) · scale + residual."""
    x = arg(0, dtype)
    return apply("add", apply("mul", apply("mul", x, apply("sigmoid", x)), arg(1, dtype)), arg(2, dtype))


def gate(parts, dtype=np.float32):
    """The product of all parts."""
    product = arg(0, dtype)
    for k in range(1, parts):
        product = apply("mul", product, arg(k, dtype))
    return product


@dataclass(frozen=True)
class ProductCase:
    """A convolution, the shape of its input, its output channels, and what else `check` is told."""

    x: tuple[int, ...]
    channels: int
    op: Conv
    more: dict = field(default_factory=dict)
