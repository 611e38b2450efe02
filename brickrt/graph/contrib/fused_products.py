"""Products that ONNX Runtime's optimizer wrote together with what stood around them."""

from __future__ import annotations

from brickrt.graph.contrib.body import ContributedBody, defines
from brickrt.graph.contrib.parts import WINDOW, activated, channels_first, channels_last


@defines("FusedConv", needs=range(2))
def fused_conv(b: ContributedBody) -> None:
    """A convolution, plus a tensor, through an activation."""
    _conv(b, last=False)


@defines("NhwcFusedConv", "NhwcConv", needs=range(2))
def nhwc_conv(b: ContributedBody) -> None:
    """The same of tensors with channels innermost."""
    _conv(b, last=True)


def _conv(b: ContributedBody, last: bool) -> None:
    rank = len(b.type(0).shape)
    x = channels_first(b, b.input(0), rank, last)
    bias = [b.input(2)] if b.input(2) else []
    y = channels_last(b, b.add("Conv", x, b.input(1), *bias, **b.kept(*WINDOW)), rank, last)
    y = b.add("Add", y, b.input(3)) if b.input(3) else y
    b.give(activated(b, y, b.attribute("activation", ""), b.attribute("activation_params", ())))


@defines("FusedGemm", needs=range(2))
def fused_gemm(b: ContributedBody) -> None:
    """alpha · A' · B' + beta · C through an activation."""
    y = b.add("Gemm", *b.inputs[:3], **b.kept("alpha", "beta", "transA", "transB"))
    b.give(activated(b, y, b.attribute("activation", ""), _parameters(b, "alpha", "beta", "gamma")))


@defines("FusedMatMul", "TransposeMatMul", needs=range(2))
def fused_matmul(b: ContributedBody) -> None:
    """alpha times the product of matrices, each transposed where an attribute says so."""
    b.give(_product(b))


@defines("FusedMatMulActivation", needs=range(2))
def fused_matmul_activation(b: ContributedBody) -> None:
    """The same through an activation."""
    names = ("alpha", "beta", "gamma")
    b.give(activated(b, _product(b), b.attribute("activation"), _parameters(b, *names)))


def _parameters(b: ContributedBody, *names: str) -> list[float]:
    """The parameters that a node gives for its activation."""
    return list(b.kept(*(f"activation_{name}" for name in names)).values())


def _product(b: ContributedBody) -> str:
    y = b.add("MatMul", *(_turned(b, k, side) for k, side in enumerate("AB")))
    alpha = b.attribute("alpha", 1.0)
    return y if alpha == 1 else b.add("Mul", y, b.number(alpha, 0))


def _turned(b: ContributedBody, k: int, side: str) -> str:
    """A factor: its first axis before the last one where `transBatch` says so, then its last two axes exchanged where
    `trans` does. A vector stays as it is."""
    order = list(range(len(b.type(k).shape)))
    if b.attribute(f"transBatch{side}", 0) and len(order) > 2:
        order = [*order[1:-1], order[0], order[-1]]
    if b.attribute(f"trans{side}", 0) and len(order) > 1:
        order = [*order[:-2], order[-1], order[-2]]
    return b.input(k) if order == sorted(order) else b.add("Transpose", b.input(k), perm=order)
