"""Conversions, elementwise operators, joins and means of quantized tensors: dequantized, computed, quantized again."""

from __future__ import annotations

from brickrt.graph.contrib.body import ContributedBody, defines
from brickrt.graph.contrib.parts import dequantized, quantized


@defines("QuantizeLinear", "DequantizeLinear", needs=range(2))
def conversion(b: ContributedBody) -> None:
    """As the standard operator."""
    b.give(b.add(b.op_type, *b.inputs, **b.kept("axis", "block_size")))


@defines("QLinearAdd", "QLinearMul", needs=(0, 1, 3, 4, 6))
def arithmetic(b: ContributedBody) -> None:
    """The sum or the product of two tensors."""
    operands = dequantized(b, 0, 1, 2), dequantized(b, 3, 4, 5)
    b.give(quantized(b, b.add(b.op_type.removeprefix("QLinear"), *operands), 6, 7, like=0))


@defines("QLinearSigmoid", "QLinearLeakyRelu", needs=(0, 1, 3))
def activation(b: ContributedBody) -> None:
    """A function of each element."""
    kind = b.op_type.removeprefix("QLinear")
    b.give(quantized(b, b.add(kind, dequantized(b, 0, 1, 2), **b.kept("alpha")), 3, 4, like=0))


@defines("QLinearSoftmax", needs=(0, 1, 3))
def softmax(b: ContributedBody) -> None:
    """Softmax along an axis; along all from it on, where `opset` is one of those that did so."""
    x, shape, axis = dequantized(b, 0, 1, 2), b.type(0).shape, b.attribute("axis", -1)
    if b.attribute("opset") >= 13:
        y = b.add("Softmax", x, axis=axis)
    else:
        y = b.add("Softmax", b.add("Flatten", x, axis=axis % max(len(shape), 1)), axis=-1)
        y = b.add("Reshape", y, b.integers(*shape), allowzero=1)
    b.give(quantized(b, y, 3, 4, like=0))


@defines("QLinearConcat", needs=range(5))
def concat(b: ContributedBody) -> None:
    """Tensors of a scale each, joined in one; every third input from the third on is one of them."""
    parts = [dequantized(b, k, k + 1, k + 2) for k in range(2, len(b.inputs), 3)]
    b.give(quantized(b, b.add("Concat", *parts, axis=b.attribute("axis")), 0, 1, like=2))


@defines("QLinearReduceMean", needs=(0, 1, 3))
def mean(b: ContributedBody) -> None:
    """The mean along axes, or of all."""
    axes = b.attribute("axes", range(len(b.type(0).shape)))
    y = b.add("ReduceMean", dequantized(b, 0, 1, 2), b.integers(*axes), keepdims=b.attribute("keepdims", 1))
    b.give(quantized(b, y, 3, 4, like=0))


@defines("QLinearWhere", needs=range(9))
def where(b: ContributedBody) -> None:
    """Elements of one tensor where a condition holds, else of another."""
    y = b.add("Where", b.input(0), dequantized(b, 1, 2, 3), dequantized(b, 4, 5, 6))
    b.give(quantized(b, y, 7, 8, like=1))


@defines("MulInteger", needs=(0, 2))
def integer_product(b: ContributedBody) -> None:
    """Elementwise products of integers less their zero points, in int32."""
    b.give(b.add("Mul", _centered(b, 0, 1), _centered(b, 2, 3)))


def _centered(b: ContributedBody, x: int, zero: int) -> str:
    """An input in int32, less its zero point."""
    wide = b.add("Cast", b.input(x), to=INT32)
    return b.add("Sub", wide, b.add("Cast", b.input(zero), to=INT32)) if b.input(zero) else wide


INT32 = 6
"""ONNX's number of the type."""


@defines("ReduceSumInteger", needs=range(1))
def integer_sum(b: ContributedBody) -> None:
    """The sum of bytes along axes, in int32."""
    wide = b.add("Cast", b.input(0), to=INT32)
    b.give(b.add("ReduceSum", wide, b.integers(*b.attribute("axes")), keepdims=b.attribute("keepdims", 1)))
