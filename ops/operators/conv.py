"""Convolution and transposed convolution in any number of dimensions.

Inputs: x [N, C, spatial…], w [M, C/groups, kernel…] (transposed: [C, M/groups, kernel…]), then the bias [M] if `bias`,
then, if `channel_scaled`, factors [N or 1, C, 1…] of the input's channels (squeeze and excitation), then the extra
operands of the epilogue, which broadcast to the output. x may be uint8 and w int8: then bias and sums are int32
(`product_types.py`). In the epilogue `Arg(0)` is the convolution with its bias, and
`Arg(k)`, k ≥ 1, is extra operand k-1.

Where `halves`, the factors are float16 in the model, and results are rounded to it: kernels may multiply 16 bits of
each factor (`product_types.py`).

A convolution with `gate_parts` > 1 sums that many times the channels of its output. Its epilogue combines equal parts
of them: `Arg(k)`, k < gate_parts, is part k, and the extra operands follow (gates: a · b, a · sigmoid(b)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Op, Slab, crop
from brickrt.ops.definitions.convolution import correlate, scatter
from brickrt.ops.epilogue import count_applies, epilogue_type, finish
from brickrt.ops.expr import Expr
from brickrt.ops.operators.product_types import exact_type, is_integer_product, product_type, wrapped_sums
from brickrt.ops.regions import box_shape, columns, operand_region, settle, window_region
from brickrt.ops.types import Boxes, Shape, TensorType
from brickrt.ops.window import Window, check_window, read_padded

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Conv(Op):
    """Convolution; the module's docstring lists its inputs.

    `pads` are before, `pads_end` behind each spatial dimension.
    """

    name: ClassVar[str] = "Conv"
    kernel: Ints
    strides: Ints
    dilations: Ints
    pads: Ints  # before each spatial dimension
    pads_end: Ints
    groups: int = 1
    bias: bool = False
    epilogue: Expr | None = None
    gate_parts: int = 1
    channel_scaled: bool = False
    halves: bool = False

    @property
    def main(self) -> int:
        """Inputs before the extra operands of the epilogue."""
        return 2 + self.bias + self.channel_scaled

    @cached_property
    def window(self) -> Window:
        """The window that each output sums."""
        return Window(self.kernel, self.strides, self.dilations, self.pads)

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """Checks weights, bias and channel factors against the input."""
        x, w = _check_operands(self, ins)
        if w.shape[1] * self.groups != x.shape[1] or w.shape[0] % self.groups:
            raise ValueError(f"Conv: weights {w} do not fit input {x} in {self.groups} groups")
        padded = (e + a + b for e, a, b in zip(x.shape[2:], self.pads, self.pads_end, strict=True))
        spatial = [(e - span) // s + 1 for e, span, s in zip(padded, self.window.spans, self.strides, strict=True)]
        if w.shape[0] % self.gate_parts or (self.gate_parts > 1 and self.epilogue is None):
            raise ValueError(f"Conv: weights {w} in {self.gate_parts} parts; equal ones and an epilogue are needed")
        if self.channel_scaled:
            factors, batch = ins[self.main - 1].shape, x.shape[0]
            if self.groups > 1 or factors[1:] != (x.shape[1], *(1 for _ in spatial)) or factors[0] not in (1, batch):
                raise ValueError(f"Conv: factors {ins[self.main - 1]} for input {x} in {self.groups} groups")
        return _result(self, ins, w.shape[0], spatial, self.gate_parts)

    def _product_boxes(self, boxes: Boxes, out: TensorType) -> Boxes:
        """Boxes of the product that hold all parts of boxes of the output."""
        if self.gate_parts == 1:
            return boxes
        hi = boxes.hi.copy(order="K")
        hi[:, 1] += (self.gate_parts - 1) * out.shape[1]
        return Boxes(boxes.lo, hi)

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """Input: the window's reach in the groups touched; weights and bias: rows of the box's channels."""
        product = self._product_boxes(boxes, out)
        m_lo, m_hi = product.lo[:, 1], product.hi[:, 1]
        if i == 0:
            lo, hi = self._reach(product, ins)
        elif i == 1:
            lo = columns(len(boxes), m_lo, [0] * (ins[1].rank - 1))
            hi = columns(len(boxes), m_hi, ins[1].shape[1:])
        elif i == 2 and self.bias:
            lo, hi = m_lo[:, None], m_hi[:, None]
        elif self.channel_scaled and i == self.main - 1:
            lo = columns(len(boxes), boxes.lo[:, 0] * (ins[i].shape[0] > 1), [0] * (ins[i].rank - 1))
            hi = columns(len(boxes), boxes.hi[:, 0], ins[i].shape[1:])
        else:
            return operand_region(boxes, ins[i].shape)
        return settle(boxes, lo, hi, ins[i].shape)

    def _reach(self, boxes: Boxes, ins: Sequence[TensorType]) -> tuple[np.ndarray, np.ndarray]:
        """The ranges of x that boxes of the product read, padding included."""
        first, last = _groups_touched(boxes, ins[1].shape[0] // self.groups, self.groups)
        c = ins[1].shape[1]
        return window_region(boxes, self.window.reach(boxes.lo[:, 2:], boxes.hi[:, 2:]), (first * c, last * c))

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """Computes all groups that the box touches, and keeps its channels."""
        shape = box_shape(box)
        if 0 in shape:
            return np.empty(shape, out.dtype)
        dtype = exact_type(*ins[:2])
        wide = self._product_boxes(box, out)
        lo, hi = self._reach(wide, ins)
        x = read_padded(slabs[0], lo[0], hi[0], 0, dtype)
        if self.channel_scaled:
            x = x * crop(slabs[self.main - 1], self.region(self.main - 1, box, ins, out)).astype(dtype)
        w = crop(slabs[1], self.region(1, box, ins, out)).astype(dtype)
        rows, channels = ins[1].shape[0] // self.groups, int(wide.extents[0, 1])
        first, last = (int(np.ravel(g)[0]) for g in _groups_touched(wide, rows, self.groups))
        lead = 0
        if last - first > 1:  # every group needs all its rows, those outside the box too
            lead, part = int(box.lo[0, 1]) - first * rows, w
            w = np.zeros(((last - first) * rows, *part.shape[1:]), dtype)
            w[lead : lead + len(part)] = part
        product = correlate(x, w, last - first, self.window, shape[2:])[:, lead : lead + channels]
        return _finish(self, product, box, slabs, ins, out)

    def flops(self, ins: Sequence[TensorType], out: TensorType) -> int:
        """Multiply-adds of all parts, bias, and the epilogue."""
        product = (2 * math.prod(ins[1].shape[1:]) + self.bias) * self.gate_parts
        return (product + count_applies(self.epilogue)) * out.size


@dataclass(frozen=True)
class ConvTranspose(Op):
    """Transposed convolution: every input is scattered over the outputs that its window reaches."""

    name: ClassVar[str] = "ConvTranspose"
    kernel: Ints
    strides: Ints
    dilations: Ints
    pads: Ints
    pads_end: Ints
    output_padding: Ints
    groups: int = 1
    bias: bool = False
    epilogue: Expr | None = None
    halves: bool = False
    gate_parts: ClassVar[int] = 1
    channel_scaled: ClassVar[bool] = False

    @property
    def main(self) -> int:
        """Inputs before the extra operands of the epilogue."""
        return 2 + self.bias

    @cached_property
    def window(self) -> Window:
        """The window of the convolution this is the transpose of: it slides over this operator's output."""
        return Window(self.kernel, self.strides, self.dilations, self.pads)

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """The inverse of a convolution's shape formula, with `output_padding` to choose among extents."""
        x, w = _check_operands(self, ins)
        check_window(self.name, x.rank - 2, output_padding=self.output_padding)
        if w.shape[0] != x.shape[1] or x.shape[1] % self.groups:
            raise ValueError(f"ConvTranspose: weights {w} do not fit input {x} in {self.groups} groups")
        settings = zip(
            x.shape[2:], self.strides, self.output_padding, self.window.spans, self.pads, self.pads_end, strict=True
        )
        spatial = [s * (e - 1) + extra + span - a - b for e, s, extra, span, a, b in settings]
        return _result(self, ins, w.shape[1] * self.groups, spatial)

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """Input: what contributes to the box; weights: the columns of the box's channels."""
        n, m = len(boxes), ins[1].shape[1]
        m_lo, m_hi = boxes.lo[:, 1], boxes.hi[:, 1]
        first, last = _groups_touched(boxes, m, self.groups)
        c = ins[0].shape[1] // self.groups
        if i == 0:
            lo, hi = window_region(boxes, self._contributors(boxes, ins[0].shape[2:]), (first * c, last * c))
        elif i == 1:
            several = last - first > 1
            rows_lo, rows_hi = np.where(several, 0, m_lo - first * m), np.where(several, m, m_hi - first * m)
            lo = columns(n, np.broadcast_to(first * c, n), rows_lo, [0] * len(self.kernel))
            hi = columns(n, np.broadcast_to(last * c, n), rows_hi, self.kernel)
        elif i == 2 and self.bias:
            lo, hi = m_lo[:, None], m_hi[:, None]
        else:
            return operand_region(boxes, ins[i].shape)
        return settle(boxes, lo, hi, ins[i].shape)

    def _contributors(self, boxes: Boxes, extents: Shape) -> tuple[np.ndarray, np.ndarray]:
        """Per spatial dimension, the range around all inputs that contribute to the box.

        Those are all i with i·stride + t·dilation - pad in the box, for some tap t.
        """
        lo, hi = np.zeros((2, len(extents), len(boxes)), np.int64).transpose(0, 2, 1)
        for axis, extent in enumerate(extents):
            stride, shifts = self.strides[axis], self.pads[axis] - np.arange(self.kernel[axis]) * self.dilations[axis]
            start = np.maximum(-(-(boxes.lo[:, 2 + axis] + shifts[:, None]) // stride), 0)
            stop = np.minimum((boxes.hi[:, 2 + axis] - 1 + shifts[:, None]) // stride, extent - 1)
            reads = start <= stop  # [taps, n]
            lo[:, axis] = np.where(reads, start, extent).min(axis=0, initial=extent)
            hi[:, axis] = np.where(reads, stop, -1).max(axis=0, initial=-1) + 1
        return lo, hi

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """Scatters the region of the input, and cuts the box out of what it reaches."""
        shape = box_shape(box)
        if 0 in shape:
            return np.empty(shape, out.dtype)
        dtype = exact_type(*ins[:2])
        region = self.region(0, box, ins, out)
        product = np.zeros(shape, dtype)
        if region.volumes[0]:
            x = crop(slabs[0], region).astype(dtype)
            weights = self.region(1, box, ins, out)
            w = crop(slabs[1], weights).astype(dtype)
            first, last = (int(np.ravel(g)[0]) for g in _groups_touched(box, ins[1].shape[1], self.groups))
            spatial = region.lo[0, 2:] * np.asarray(self.strides) - np.asarray(self.pads)
            channel = first * ins[1].shape[1] + int(weights.lo[0, 1])
            reached = Slab(scatter(x, w, last - first, self.window), (int(box.lo[0, 0]), channel, *spatial.tolist()))
            product = read_padded(reached, box.lo[0], box.hi[0], 0, dtype)
        return _finish(self, product, box, slabs, ins, out)

    def flops(self, ins: Sequence[TensorType], out: TensorType) -> int:
        """Every input is multiplied with all its weights; then bias and epilogue."""
        return 2 * math.prod(ins[1].shape[1:]) * ins[0].size + (self.bias + count_applies(self.epilogue)) * out.size


def _groups_touched(boxes: Boxes, rows: int, groups: int) -> tuple[np.ndarray | int, np.ndarray | int]:
    """The range of groups that the output channels of each box belong to, `rows` channels to each of `groups`."""
    if groups == 1:
        return 0, 1
    return boxes.lo[:, 1] // rows, -(-boxes.hi[:, 1] // rows)


def _check_operands(op: Conv | ConvTranspose, ins: Sequence[TensorType]) -> tuple[TensorType, TensorType]:
    """x and w, their ranks, kernel and types checked."""
    if len(ins) < op.main:
        raise ValueError(f"{op.name}: {len(ins)} inputs, expected at least {op.main}")
    x, w = ins[0], ins[1]
    if x.rank < 3 or w.rank != x.rank or w.shape[2:] != op.kernel:
        raise ValueError(f"{op.name}: weights {w} do not fit input {x} and kernel {list(op.kernel)}")
    product_type(op.name, ins[: op.main])
    if is_integer_product(x, w) and (op.channel_scaled or op.gate_parts > 1):
        raise ValueError(f"{op.name}: integers {x} and {w} are multiplied by plain convolutions only")
    settings = {"strides": op.strides, "dilations": op.dilations, "pads": op.pads, "pads_end": op.pads_end}
    check_window(op.name, x.rank - 2, **settings)
    return x, w


def _result(
    op: Conv | ConvTranspose, ins: Sequence[TensorType], channels: int, spatial: Sequence[int], parts: int = 1
) -> TensorType:
    """Type of the output of a convolution whose product has so many channels."""
    if any(e < 1 for e in spatial):
        raise ValueError(f"{op.name}: input {ins[0]} is too small for kernel {list(op.kernel)}: output {list(spatial)}")
    if op.bias and ins[2].shape != (channels,):
        raise ValueError(f"{op.name}: bias {ins[2]}, expected [{channels}]")
    shape = (ins[0].shape[0], channels // parts, *spatial)
    sums = product_type(op.name, ins[: op.main])
    return epilogue_type(op.name, op.epilogue, ins[op.main :], sums, shape, parts)


def _finish(
    op: Conv | ConvTranspose,
    product: np.ndarray,
    box: Boxes,
    slabs: Sequence[Slab],
    ins: Sequence[TensorType],
    out: TensorType,
) -> np.ndarray:
    """Applies bias and epilogue; the product holds all parts of the box."""
    if op.bias:
        bias = crop(slabs[2], op.region(2, box, ins, out)).astype(product.dtype)
        product = product + bias.reshape(-1, *(1,) * len(op.kernel))
    product = wrapped_sums(product, *ins[:2])
    extra = op.main
    width = int(box.extents[0, 1])
    parts = [product[:, k * out.shape[1] :][:, :width] for k in range(op.gate_parts)]
    return finish(parts, op.epilogue, box, slabs[extra:], ins[extra:], out.dtype)
