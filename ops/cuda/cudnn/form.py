"""What cuDNN can compute of brick operators: convolutions and matrix products with pointwise operations after them.

A form is plain data: tensors as they lie in memory and the operations on them. Its tensors are numbered as operands of
kernels are: 0 is the output, 1 + i input i.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cuda.kernel import Precision
from brickrt.ops.cuda.operand import Operand, dense
from brickrt.ops.expr import Apply, Arg, Const, Expr
from brickrt.ops.operand import row_major
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import TensorType

Ints = tuple[int, ...]
Value = tuple[Literal["tensor", "step", "scalar"], float]
"""Operand of an operation: a tensor of the form; the result of step k, of the product itself if k is −1; a number."""

DTYPES = ("float16", "bfloat16", "float32")
BINARY = frozenset("add sub mul div pow max min".split())
EITHER_WAY = frozenset("add mul max min".split())
LATER = ("step", "tensor", "scalar")  # cuDNN takes no first operand that broadcasts to the second
LEAST_PIXELS = 32  # fewer rows of a product are not worth a convolution
SEVERAL_PARTS = "its product has several parts"
UNARY = frozenset("neg abs sqrt exp log sin cos tan tanh erf sigmoid floor ceil reciprocal".split())


class Unfit(Exception):
    """cuDNN cannot compute it; the message is why."""


@dataclass(frozen=True)
class FormTensor:
    dims: Ints
    strides: Ints  # elements
    dtype: str

    @property
    def nbytes(self) -> int:
        """From the first element to the last."""
        last = sum((d - 1) * s for d, s in zip(self.dims, self.strides, strict=True))
        return (last + 1) * np.dtype(np.float32 if self.dtype == "float32" else np.float16).itemsize


@dataclass(frozen=True)
class Pointwise:
    """`fn` is the name of a function of expr.py, "swish", or "relu", whose results are at most `most`, and `slope`
    times as steep below zero."""

    fn: str
    args: tuple[Value, ...]
    most: float = math.inf
    slope: float = 0.0


@dataclass(frozen=True)
class Form:
    """`tensors` 0 … 2 are the output and the two factors. Of a matrix product the settings are empty."""

    kind: Literal["conv", "dgrad", "matmul"]
    tensors: tuple[FormTensor, ...]
    steps: tuple[Pointwise, ...]
    precision: Precision
    pads: Ints = ()
    pads_end: Ints = ()
    strides: Ints = ()
    dilations: Ints = ()


def as_convolution(op: Op, out: TensorType, packed: Sequence[bool], precision: Precision) -> tuple[bool, ...]:
    """The ways to ask for an operator, the better first: matrix products by constants may be 1 × 1 convolutions too,
    and have to be for float32, which cuDNN's matrix products round for tensor cores."""
    if not isinstance(op, MatMul) or not packed[1] or math.prod(out.shape[:-1]) < LEAST_PIXELS:
        return (False,)
    return (True,) if out.dtype == np.float32 and precision == "fp32" else (False, True)


def form_of(
    op: Op,
    ins: Sequence[Operand],
    out: Operand,
    packed: Sequence[bool],
    precision: Precision,
    convolution: bool = False,
) -> Form:
    """The form of an operator on operands that lie so; constant weights lie as `weights` says. A matrix product may be
    asked for as a convolution. Raises Unfit."""
    for operand in (out, *ins):
        if operand.dtype.name not in DTYPES:
            raise Unfit(f"elements of type {operand.dtype.name}")
        if 0 in operand.shape:
            raise Unfit("a tensor has no elements")
    if isinstance(op, MatMul):
        return (_pixels if convolution else _matmul)(op, ins, out, precision)
    if isinstance(op, Conv | ConvTranspose):
        return _conv(op, ins, out, packed, precision)
    raise Unfit(f"{op.name} is neither a convolution nor a matrix product")


def weights(op: Op, kind: Operand, form: Form) -> Operand:
    """How constant weights lie: of a convolution their input channels innermost, and so of a product that is one."""
    if form.kind == "matmul":
        return kind
    if isinstance(op, MatMul):
        return Operand(kind.type, (*[0] * (kind.rank - 2), 1, kind.shape[-2]))
    return dense(kind.type, "last")


# ---- convolutions


def _conv(
    op: Conv | ConvTranspose, ins: Sequence[Operand], out: Operand, packed: Sequence[bool], precision: Precision
) -> Form:
    if op.gate_parts > 1:
        raise Unfit(SEVERAL_PARTS)
    if op.channel_scaled:
        raise Unfit("it scales the channels of its input")
    if min(*op.pads, *op.pads_end) < 0:
        raise Unfit("a padding is negative")
    if isinstance(op, ConvTranspose) and any(e >= s for e, s in zip(op.output_padding, op.strides, strict=True)):
        raise Unfit("its output padding is not less than its stride")
    if len(op.kernel) > 3:
        raise Unfit(f"{len(op.kernel)} spatial dimensions")
    if ins[0].strides[1] != 1 or out.strides[1] != 1:
        raise Unfit("channels are not innermost")
    lie = [dense(ins[1].type, "last") if k == 1 and packed[1] else operand for k, operand in enumerate(ins)]
    channel = [op.bias and k == 2 for k in range(len(ins))]
    tensors = [_image(out), *(_spread(o, out.rank) if c else _image(o, out.rank) for o, c in zip(lie, channel))]
    settings = [op.pads, op.pads_end, op.strides, op.dilations]
    if len(op.kernel) == 1:
        tensors = [_with_height(t) for t in tensors]
        settings = [(empty, *s) for empty, s in zip((0, 0, 1, 1), settings, strict=True)]
    steps = _steps(op.bias, op.epilogue, len(ins))
    if op.bias:
        steps = _residual_first(steps, [k for k, t in enumerate(tensors) if k > 3 and t.dims == tensors[0].dims])
    return Form("dgrad" if isinstance(op, ConvTranspose) else "conv", tuple(tensors), steps, precision, *settings)


def _image(operand: Operand, rank: int = 0) -> FormTensor:
    """A tensor, with ones before its dimensions up to `rank`."""
    more = max(0, rank - operand.rank)
    whole = max(1, math.prod(operand.shape))
    return FormTensor((1,) * more + operand.shape, (whole,) * more + operand.strides, operand.dtype.name)


def _spread(operand: Operand, rank: int) -> FormTensor:
    """Values of the channels, [C], as an image."""
    c = operand.shape[0]
    return FormTensor((1, c, *[1] * (rank - 2)), (c, 1, *[c] * (rank - 2)), operand.dtype.name)


def _with_height(t: FormTensor) -> FormTensor:
    """A signal [N, C, L] as an image of height 1."""
    n, c, length = t.dims
    return FormTensor((n, c, 1, length), (t.strides[0], t.strides[1], t.strides[2] * length, t.strides[2]), t.dtype)


# ---- matrix products


def _matmul(op: MatMul, ins: Sequence[Operand], out: Operand, precision: Precision) -> Form:
    """As [B, M, K] × [B, K, N]; where b has no batch dimensions, those of a are among its rows."""
    for operand in (out, *ins):
        if operand.strides != row_major(operand.shape):
            raise Unfit("a matrix is not stored row by row")
    a, b = ins[0].shape, ins[1].shape
    batch = out.shape[:-2]
    fold = math.prod(b[:-2]) == 1 and a[:-2] == batch
    if not fold and any(math.prod(s[:-2]) != 1 and s[:-2] != batch for s in (a, b)):
        raise Unfit("its batch dimensions broadcast in part")
    tensors = [_matrices(operand, out.shape, fold and k != 2) for k, operand in enumerate((out, *ins))]
    return Form("matmul", tuple(tensors), _steps(op.bias, op.epilogue, len(ins)), precision)


def _pixels(op: MatMul, ins: Sequence[Operand], out: Operand, precision: Precision) -> Form:
    """As a 1 × 1 convolution of an image whose pixels are the rows of a; b is constant, and may have no batch."""
    n, k, dtype = out.shape[-1], ins[0].shape[-1], out.dtype
    rows = math.prod(out.shape[:-1])
    if math.prod(ins[1].shape[:-2]) != 1 or ins[0].shape[:-1] != out.shape[:-1]:
        raise Unfit("batches of matrices are no convolution")
    if any(operand.dtype != dtype for operand in ins):
        raise Unfit("its operands have several types")
    if any(operand.strides != row_major(operand.shape) for operand in (out, *ins)):
        raise Unfit("a matrix is not stored row by row")
    for operand in ins[2:]:
        size, last = operand.type.size, operand.shape[-1:]
        if size not in (1, n, n * rows) or (size > 1 and last != (n,)):
            raise Unfit("an operand broadcasts in part")
    weights = FormTensor((n, k, 1, 1), (k, 1, k, k), dtype.name)
    others = (_column(max(1, o.type.size // n), min(n, o.type.size), dtype) for o in ins[2:])
    tensors = [_column(rows, n, dtype), _column(rows, k, dtype), weights, *others]
    steps = _steps(op.bias, op.epilogue, len(ins))
    if op.bias:
        steps = _residual_first(steps, [i for i, t in enumerate(tensors) if i > 3 and t.dims == tensors[0].dims])
    return Form("conv", tuple(tensors), steps, precision, (0, 0), (0, 0), (1, 1), (1, 1))


def _column(pixels: int, channels: int, dtype: np.dtype) -> FormTensor:
    """An image of width 1, channels innermost."""
    return FormTensor((1, channels, pixels, 1), (pixels * channels, 1, channels, channels), dtype.name)


def _matrices(operand: Operand, out: Ints, fold: bool) -> FormTensor:
    """An operand as [B, rows, columns], the batch among the rows if `fold`."""
    shape = (1,) * (len(out) - operand.rank) + operand.shape
    batch, wanted = shape[:-2], out[:-2]
    count = math.prod(batch)
    if count != 1 and batch != wanted:
        raise Unfit("an operand broadcasts over a part of the batch")
    dims = (count, *shape[-2:])
    if fold:
        if count == 1 and shape[-2] != 1 and math.prod(wanted) != 1:
            raise Unfit("an operand broadcasts over the batch")
        if count > 1 and shape[-2] != out[-2]:
            raise Unfit("an operand broadcasts over rows")
        dims = (1, count * shape[-2], shape[-1])
    return FormTensor(dims, row_major(dims), operand.dtype.name)


# ---- what comes after the product


def _steps(bias: bool, epilogue: Expr | None, inputs: int) -> tuple[Pointwise, ...]:
    chain = _OperationChain(inputs - bias)
    value: Value = ("step", -1)
    if bias:
        value = chain.put(Pointwise("add", (value, ("tensor", 3))))
    if epilogue is not None:
        chain.extra = 3 + bias
        chain.product = value
        value = chain.value(epilogue)
        if value != ("step", len(chain.steps) - 1):
            raise Unfit("the result is not that of its last operation")
    return tuple(chain.steps)


def _residual_first(steps: tuple[Pointwise, ...], whole: Sequence[int]) -> tuple[Pointwise, ...]:
    """One of the tensors `whole` is added before the bias where it is added next: so some engines of cuDNN want it,
    those for float32 among them."""
    bias: Value = ("step", 0)
    again = [value for step in steps[1:] for value in step.args].count(bias)
    for k in whole:
        residual: Value = ("tensor", k)
        if steps[1:2] == (Pointwise("add", (bias, residual)),) and again == 1:
            first = Pointwise("add", (("step", -1), residual))
            return first, Pointwise("add", (bias, ("tensor", 3))), *steps[2:]
    return steps


@dataclass
class _OperationChain:
    """Operations in the order in which they are computed; equal ones once."""

    inputs: int
    steps: list[Pointwise] = field(default_factory=list)
    product: Value = ("step", -1)
    extra: int = 3

    def put(self, step: Pointwise) -> Value:
        if step not in self.steps:
            self.steps.append(step)
        return "step", self.steps.index(step)

    def value(self, expr: Expr) -> Value:
        if isinstance(expr, Const):
            return "scalar", float(expr.value)
        if isinstance(expr, Arg):
            return self.product if expr.index == 0 else ("tensor", self.extra + expr.index - 1)
        assert isinstance(expr, Apply)
        if expr.dtype.name not in DTYPES:
            raise Unfit(f"its epilogue has values of type {expr.dtype.name}")
        return self.known(expr) or self.plain(expr)

    def known(self, expr: Apply) -> Value | None:
        """Operations of cuDNN that are several of ours."""
        if expr.fn == "mul":
            for x, gate in (expr.args, expr.args[::-1]):
                if gate == Apply(x.dtype, "sigmoid", (x,)):
                    return self.put(Pointwise("swish", (self.value(x),)))
        if leaky := _leaky(expr):
            return self.put(Pointwise("relu", (self.value(leaky[0]),), slope=leaky[1]))
        clipped = _relu(expr)
        return clipped and self.put(Pointwise("relu", (self.value(clipped[0]),), clipped[1]))

    def plain(self, expr: Apply) -> Value:
        if expr.fn == "cast":
            return self.value(expr.args[0])
        if expr.fn not in BINARY | UNARY:
            raise Unfit(f"its epilogue has '{expr.fn}'")
        args = tuple(self.value(a) for a in expr.args)
        if expr.fn in EITHER_WAY:
            args = tuple(sorted(args, key=lambda value: LATER.index(value[0])))
        if all(kind == "scalar" for kind, _ in args):
            raise Unfit("its epilogue computes with constants alone")
        return self.put(Pointwise(expr.fn, args))


def _leaky(expr: Apply) -> tuple[Expr, float] | None:
    """x and a if the expression is a · x below zero, else x."""
    if expr.fn != "where":
        return None
    below, steep, x = expr.args
    if below != Apply(below.dtype, "lt", (x, Const(x.dtype, 0))):
        return None
    if isinstance(steep, Apply) and steep.fn == "mul" and steep.args[0] == x and isinstance(steep.args[1], Const):
        return x, float(steep.args[1].value)
    return None


def _relu(expr: Apply) -> tuple[Expr, float] | None:
    """x and the bound of the expression if that keeps x between 0 and a bound."""
    bounds: dict[str, float] = {"max": -math.inf, "min": math.inf}
    x: Expr = expr
    while isinstance(x, Apply) and x.fn in bounds and math.isinf(bounds[x.fn]):
        constants = [a for a in x.args if isinstance(a, Const)]
        if len(constants) != 1:
            break
        bounds[x.fn] = float(constants[0].value)
        x = x.args[0] if x.args[1] is constants[0] else x.args[1]
    return (x, bounds["min"]) if bounds["max"] == 0 < bounds["min"] else None
