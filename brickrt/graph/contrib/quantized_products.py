"""Matrix products and convolutions of quantized tensors."""

from __future__ import annotations

from brickrt.graph.contrib.body import ContributedBody, defines
from brickrt.graph.contrib.parts import WINDOW, channels_first, channels_last, dequantized, quantized, type_code


@defines("QLinearConv", needs=range(8))
def conv(b: ContributedBody) -> None:
    """As the standard operator, of channels that may be innermost."""
    rank, last = len(b.type(0).shape), bool(b.attribute("channels_last", 0))
    x = channels_first(b, b.input(0), rank, last)
    y = b.add("QLinearConv", x, *b.inputs[1:], **b.kept(*WINDOW))
    b.give(channels_last(b, y, rank, last))


@defines("QGemm", needs=range(6))
def gemm(b: ContributedBody) -> None:
    """alpha · A' · B' + C, C in units of alpha and both scales; floats where no scale of the result is given."""
    turned = {name: b.attribute(name, 0) for name in ("transA", "transB")}
    scale = b.input(4)
    if (alpha := b.attribute("alpha", 1.0)) != 1:
        scale = b.add("Mul", scale, b.number(alpha, 4))
    weights = b.add("DequantizeLinear", b.input(3), scale, b.input(5), axis=0 if turned["transB"] else 1)
    bias = [_bias(b, b.add("Mul", b.input(1), scale))] if b.input(6) else []
    y = b.add("Gemm", dequantized(b, 0, 1, 2), weights, *bias, **turned)
    b.give(quantized(b, y, 7, 8, like=0) if b.input(7) else y)


def _bias(b: ContributedBody, scale: str) -> str:
    """C as floats; a row is a vector."""
    c, shape = b.input(6), b.type(6).shape
    if len(shape) == 2 and shape[0] == 1:
        c, shape = b.add("Reshape", c, b.integers(-1)), shape[1:]
    return b.add("DequantizeLinear", c, scale, axis=len(shape) - 1 if shape else 0)


@defines("MatMulIntegerToFloat", needs=range(4))
def matmul_integer_to_float(b: ContributedBody) -> None:
    """The product of integers less their zero points, times both scales, plus a bias."""
    product = b.add("MatMulInteger", b.input(0), b.input(1), *_zeros(b.input(4), b.input(5)))
    _scaled(b, product, b.add("Mul", b.input(2), b.input(3)), 2, 6)


@defines("DynamicQuantizeMatMul", needs=range(3))
def dynamic_matmul(b: ContributedBody) -> None:
    """A product with quantized weights, of a tensor that is quantized by its own range."""
    x, scale, zero = b.add_all("DynamicQuantizeLinear", [b.input(0)], 3)
    product = b.add("MatMulInteger", x, b.input(1), *_zeros(zero, b.input(3)))
    _scaled(b, product, b.add("Mul", scale, b.input(2)), 0, 4)


def _zeros(*zeros: str) -> list[str]:
    """Zero points as the last inputs of a node, those at the end left off where they are left out."""
    return list(zeros) if zeros[-1] else list(zeros[:-1]) if zeros[0] else []


def _scaled(b: ContributedBody, product: str, scale: str, like: int, bias: int) -> None:
    """Gives integer sums times a scale, in the type of input `like`, plus a bias if there is one."""
    y = b.add("Mul", b.add("Cast", product, to=type_code(b.type(like).dtype)), scale)
    b.give(b.add("Add", y, b.input(bias)) if b.input(bias) else y)
