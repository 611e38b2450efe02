"""Makes the form of a brick operator, or says why cuDNN cannot compute it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cuda.cudnn.form import DTYPES, Form, FormTensor, Ints, Unfit
from brickrt.ops.cuda.cudnn.form_steps import residual_first, steps_of
from brickrt.ops.cuda.kernel import Precision
from brickrt.ops.cuda.operand import Operand, dense
from brickrt.ops.operand import row_major
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes, TensorType

LEAST_PIXELS = 32  # fewer rows of a product are not worth a convolution where cuDNN has the product
SEVERAL_PARTS = "its product has several parts"


def as_convolution(op: Op, out: TensorType, packed: Sequence[bool], precision: Precision) -> tuple[bool, ...]:
    """The ways to ask for an operator, the better first; True asks for a matrix product as a 1 × 1 convolution.

    That takes constant weights. Float32 in full precision has no other way: cuDNN's matrix products round it for tensor
    cores, so few rows are asked for as few pixels. Other precisions ask for few rows as a product alone.
    """
    if not isinstance(op, MatMul) or not packed[1]:
        return (False,)
    if out.dtype == np.float32 and precision == "fp32":
        return (True,)
    return (False, True) if math.prod(out.shape[:-1]) >= LEAST_PIXELS else (False,)


def form_of(
    op: Op,
    ins: Sequence[Operand],
    out: Operand,
    packed: Sequence[bool],
    precision: Precision,
    convolution: bool = False,
) -> Form:
    """The form of an operator on these operands; constant weights lie as `weights` says. Raises Unfit.

    `convolution` asks for a matrix product as a convolution.
    """
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
    """How constant weights lie for a form: input channels innermost in convolutions, also those made of products."""
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
    if op.region(0, Boxes.whole(out.shape), [operand.type for operand in ins], out.type).some_empty:
        raise Unfit("it reads nothing but padding")  # and so does not wait for what writes the input
    lie = [dense(ins[1].type, "last") if k == 1 and packed[1] else operand for k, operand in enumerate(ins)]
    channel = [op.bias and k == 2 for k in range(len(ins))]
    tensors = [_image(out), *(_spread(o, out.rank) if c else _image(o, out.rank) for o, c in zip(lie, channel))]
    settings = [op.pads, op.pads_end, op.strides, op.dilations]
    if len(op.kernel) == 1:
        tensors = [_with_height(t) for t in tensors]
        settings = [(empty, *s) for empty, s in zip((0, 0, 1, 1), settings, strict=True)]
    steps = steps_of(op.bias, op.epilogue)
    if op.bias:
        steps = residual_first(steps, [k for k, t in enumerate(tensors) if k > 3 and t.dims == tensors[0].dims])
    return Form("dgrad" if isinstance(op, ConvTranspose) else "conv", tuple(tensors), steps, precision, *settings)


def _image(operand: Operand, rank: int = 0) -> FormTensor:
    """A tensor as it lies, with dimensions of extent 1 put before its own up to `rank`."""
    more = max(0, rank - operand.rank)
    whole = max(1, math.prod(operand.shape))
    return FormTensor((1,) * more + operand.shape, (whole,) * more + operand.strides, operand.dtype.name)


def _spread(operand: Operand, rank: int) -> FormTensor:
    """One value per channel, [C], as an image of one pixel."""
    c = operand.shape[0]
    return FormTensor((1, c, *[1] * (rank - 2)), (c, 1, *[c] * (rank - 2)), operand.dtype.name)


def _with_height(t: FormTensor) -> FormTensor:
    """A signal [N, C, L] as an image of height 1."""
    n, c, length = t.dims
    return FormTensor((n, c, 1, length), (t.strides[0], t.strides[1], t.strides[2] * length, t.strides[2]), t.dtype)


# ---- matrix products


def _matmul(op: MatMul, ins: Sequence[Operand], out: Operand, precision: Precision) -> Form:
    """A product [B, M, K] × [B, K, N]; where b has no batch dimensions, those of a are among its rows."""
    if not all(map(_row_by_row, (out, *ins))):
        raise Unfit("a matrix is not stored row by row")
    a, b = ins[0].shape, ins[1].shape
    batch = out.shape[:-2]
    fold = math.prod(b[:-2]) == 1 and a[:-2] == batch
    if not fold and any(math.prod(s[:-2]) != 1 and s[:-2] != batch for s in (a, b)):
        raise Unfit("its batch dimensions broadcast in part")
    tensors = [_matrices(operand, out.shape, fold and k != 2) for k, operand in enumerate((out, *ins))]
    return Form("matmul", tuple(tensors), steps_of(op.bias, op.epilogue), precision)


def _row_by_row(operand: Operand) -> bool:
    """Whether rows follow each other; along dimensions of extent 1 there is nothing to follow."""
    dense = zip(operand.shape, operand.strides, row_major(operand.shape), strict=True)
    return all(stride == wanted for extent, stride, wanted in dense if extent > 1)


def _pixels(op: MatMul, ins: Sequence[Operand], out: Operand, precision: Precision) -> Form:
    """A product as a 1 × 1 convolution of an image whose pixels are the rows of a; b may have no batch dimensions."""
    n, k, dtype = out.shape[-1], ins[0].shape[-1], out.dtype
    rows = math.prod(out.shape[:-1])
    if math.prod(ins[1].shape[:-2]) != 1 or ins[0].shape[:-1] != out.shape[:-1]:
        raise Unfit("batches of matrices are no convolution")
    if any(operand.dtype != dtype for operand in ins):
        raise Unfit("its operands have several types")
    if not all(map(_row_by_row, (out, *ins))):
        raise Unfit("a matrix is not stored row by row")
    for operand in ins[2:]:
        size, last = operand.type.size, operand.shape[-1:]
        if size not in (1, n, n * rows) or (size > 1 and last != (n,)):
            raise Unfit("an operand broadcasts in part")
    weights = FormTensor((n, k, 1, 1), (k, 1, k, k), dtype.name)
    others = (_column(max(1, o.type.size // n), min(n, o.type.size), dtype) for o in ins[2:])
    tensors = [_column(rows, n, dtype), _column(rows, k, dtype), weights, *others]
    steps = steps_of(op.bias, op.epilogue)
    if op.bias:
        steps = residual_first(steps, [i for i, t in enumerate(tensors) if i > 3 and t.dims == tensors[0].dims])
    return Form("conv", tuple(tensors), steps, precision, (0, 0), (0, 0), (1, 1), (1, 1))


def _column(pixels: int, channels: int, dtype: np.dtype) -> FormTensor:
    """A matrix as an image of width 1, columns of the matrix being channels, innermost."""
    return FormTensor((1, channels, pixels, 1), (pixels * channels, 1, channels, channels), dtype.name)


def _matrices(operand: Operand, out: Ints, fold: bool) -> FormTensor:
    """An operand of a product as [B, rows, columns], the batch among the rows if `fold`. Raises Unfit."""
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
